#include "client/shared_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace sluice::client {
namespace {

constexpr double kMostExpectedUs = 1e12;
constexpr double kForecastGain = 0.05;  // of one forecast in the smoothed error

}  // namespace

adapt::TimeUs NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

SharedLink::SharedLink()
    : scheduler_([this](LoadId id, adapt::TimeUs now_us, const adapt::Event& event,
                        const adapt::Actions& actions) {
        mutex_.AssertHeld();
        Record(id, now_us, event, actions);
      }) {}

std::unique_ptr<SharedLink::Member> SharedLink::Join(adapt::LoadSpec spec,
                                                     std::function<void()> wake,
                                                     std::unique_ptr<EventLog> log) {
  absl::MutexLock lock(&mutex_);
  const LoadId id = scheduler_.Add(std::move(spec));
  wakes_[id] = std::move(wake);
  if (log != nullptr) logs_[id] = std::move(log);
  return std::unique_ptr<Member>(new Member(*this, id));
}

void SharedLink::Leave(LoadId id) {
  absl::MutexLock lock(&mutex_);
  scheduler_.Remove(id);
  wakes_.erase(id);
  logs_.erase(id);
}

void SharedLink::Record(LoadId id, adapt::TimeUs now_us, const adapt::Event& event,
                        const adapt::Actions& actions) {
  const auto found = logs_.find(id);
  if (found != logs_.end()) found->second->Add(now_us, event, actions);
}

std::unique_ptr<EventLog> SharedLink::TakeLog(LoadId id) {
  absl::MutexLock lock(&mutex_);
  auto log = logs_.extract(id);
  return log.empty() ? nullptr : std::move(log.mapped());
}

void SharedLink::Apply(LoadId id, const adapt::Event& event) {
  absl::MutexLock lock(&mutex_);
  scheduler_.Apply(id, event, NowUs());
}

void SharedLink::SetPace(LoadId id, const adapt::ComputePace& pace) {
  absl::MutexLock lock(&mutex_);
  scheduler_.SetPace(id, pace);
}

adapt::Actions SharedLink::Decide(LoadId id) {
  absl::MutexLock lock(&mutex_);
  const adapt::TimeUs now = NowUs();
  for (const LoadId waiting : scheduler_.Decide({estimator_.View(now), {}}, now)) {
    if (waiting != id) wakes_[waiting]();
  }
  return scheduler_.TakeActions(id);
}

adapt::TimeUs SharedLink::WakeUs() {
  absl::MutexLock lock(&mutex_);
  return scheduler_.WakeUs(NowUs());
}

int SharedLink::LoadedStep(LoadId id, uint32_t chunk) {
  absl::MutexLock lock(&mutex_);
  return scheduler_.planner(id)->loaded_step(chunk);
}

adapt::TimeUs SharedLink::OnAsked(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const adapt::TimeUs now = NowUs();
  estimator_.OnAsked(bytes, now);
  const adapt::LinkView view = estimator_.View(now);
  if (!(view.mean_bytes_per_s > 0)) return 0;
  const double us =
      static_cast<double>(estimator_.outstanding_bytes()) / view.mean_bytes_per_s * 1e6;
  return view.rtt_us + static_cast<adapt::TimeUs>(std::min(us, kMostExpectedUs)) + 1;
}

void SharedLink::OnForecast(adapt::TimeUs expected_us, adapt::TimeUs actual_us) {
  const double error = std::abs(static_cast<double>(actual_us - expected_us)) /
                       static_cast<double>(std::max<adapt::TimeUs>(expected_us, 1));
  absl::MutexLock lock(&mutex_);
  const double gain = forecast_known_ ? kForecastGain : 1;
  forecast_error_ += gain * (error - forecast_error_);
  forecast_known_ = true;
}

double SharedLink::forecast_error() {
  absl::MutexLock lock(&mutex_);
  return forecast_error_;
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
