#include "client/link_monitor.h"

#include <chrono>

namespace sluice::client {

adapt::TimeUs NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void LinkMonitor::OnAsked(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  estimator_.OnAsked(bytes, NowUs());
}

void LinkMonitor::OnBytes(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  estimator_.OnBytes(bytes, NowUs());
}

void LinkMonitor::OnDropped(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  estimator_.OnDropped(bytes, NowUs());
}

void LinkMonitor::OnFirstByte(adapt::TimeUs elapsed_us, adapt::TimeUs queue_delay_us) {
  absl::MutexLock lock(&mutex_);
  estimator_.OnFirstByte(elapsed_us, queue_delay_us);
}

adapt::LinkView LinkMonitor::View() {
  absl::MutexLock lock(&mutex_);
  return estimator_.View(NowUs());
}

bool LinkMonitor::Allow() {
  absl::MutexLock lock(&mutex_);
  return breaker_.Allow(NowUs());
}

void LinkMonitor::OnSuccess() {
  absl::MutexLock lock(&mutex_);
  breaker_.OnSuccess();
}

void LinkMonitor::OnFailure() {
  absl::MutexLock lock(&mutex_);
  breaker_.OnFailure(NowUs(), std::uniform_real_distribution<double>(0, 1)(jitter_));
}

void LinkMonitor::OnNoVerdict() {
  absl::MutexLock lock(&mutex_);
  breaker_.OnNoVerdict();
}

bool LinkMonitor::breaker_open() {
  absl::MutexLock lock(&mutex_);
  return breaker_.state(NowUs()) != adapt::CircuitBreaker::State::kClosed;
}

}  // namespace sluice::client
