#include "client/shared_link.h"

#include <chrono>
#include <utility>

namespace sluice::client {

adapt::TimeUs NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::unique_ptr<SharedLink::Member> SharedLink::Join(adapt::LoadSpec spec,
                                                     std::function<void()> wake) {
  absl::MutexLock lock(&mutex_);
  const LoadId id = scheduler_.Add(std::move(spec));
  wakes_[id] = std::move(wake);
  return std::unique_ptr<Member>(new Member(*this, id));
}

void SharedLink::Leave(LoadId id) {
  absl::MutexLock lock(&mutex_);
  scheduler_.Remove(id);
  wakes_.erase(id);
}

void SharedLink::Apply(LoadId id, const adapt::Event& event) {
  absl::MutexLock lock(&mutex_);
  scheduler_.Apply(id, event, NowUs());
}

adapt::Actions SharedLink::Decide(LoadId id) {
  absl::MutexLock lock(&mutex_);
  const adapt::TimeUs now = NowUs();
  for (const LoadId waiting : scheduler_.Decide({estimator_.View(now)}, now)) {
    if (waiting != id) wakes_[waiting]();
  }
  return scheduler_.TakeActions(id);
}

int SharedLink::LoadedStep(LoadId id, uint32_t chunk) {
  absl::MutexLock lock(&mutex_);
  return scheduler_.planner(id)->loaded_step(chunk);
}

void SharedLink::OnAsked(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  estimator_.OnAsked(bytes, NowUs());
}

void SharedLink::OnBytes(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  estimator_.OnBytes(bytes, NowUs());
}

void SharedLink::OnDropped(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  estimator_.OnDropped(bytes, NowUs());
}

void SharedLink::OnFirstByte(adapt::TimeUs elapsed_us, adapt::TimeUs queue_delay_us) {
  absl::MutexLock lock(&mutex_);
  estimator_.OnFirstByte(elapsed_us, queue_delay_us);
}

adapt::LinkView SharedLink::View() {
  absl::MutexLock lock(&mutex_);
  return estimator_.View(NowUs());
}

bool SharedLink::Allow() {
  absl::MutexLock lock(&mutex_);
  return breaker_.Allow(NowUs());
}

void SharedLink::OnSuccess() {
  absl::MutexLock lock(&mutex_);
  breaker_.OnSuccess();
}

void SharedLink::OnFailure() {
  absl::MutexLock lock(&mutex_);
  breaker_.OnFailure(NowUs(), std::uniform_real_distribution<double>(0, 1)(jitter_));
}

void SharedLink::OnNoVerdict() {
  absl::MutexLock lock(&mutex_);
  breaker_.OnNoVerdict();
}

bool SharedLink::breaker_open() {
  absl::MutexLock lock(&mutex_);
  return breaker_.state(NowUs()) != adapt::CircuitBreaker::State::kClosed;
}

}  // namespace sluice::client
