// The link to one server, shared by its loads: estimator, scheduler and circuit breaker.
//
// Thread-safe. Reads the clock, so that adapt/ need not. Whatever one load reports may give others
// something to do; they are woken.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "adapt/circuit_breaker.h"
#include "adapt/link_estimator.h"
#include "adapt/link_scheduler.h"
#include "client/load_record.h"

namespace sluice::client {

// The monotonic clock of all loads, us.
adapt::TimeUs NowUs();

class SharedLink {
 public:
  SharedLink();

  // One load's part in the link, from its first ask to its end. One thread at a time.
  class Member {
   public:
    ~Member() { link_.Leave(id_); }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    uint64_t id() const { return id_; }  // of the link's loads
    void Apply(const adapt::Event& event) { link_.Apply(id_, event); }
    void SetPace(const adapt::ComputePace& pace) { link_.SetPace(id_, pace); }
    // What is to be done now. Call after events, when woken, and by WakeUs.
    adapt::Actions Decide() { return link_.Decide(id_); }
    // When Decide is due at the latest if nothing happens.
    adapt::TimeUs WakeUs() { return link_.WakeUs(); }
    int loaded_step(uint32_t chunk) const { return link_.LoadedStep(id_, chunk); }
    // What was recorded, which ends with this.
    std::unique_ptr<EventLog> TakeLog() { return link_.TakeLog(id_); }

   private:
    friend class SharedLink;

    Member(SharedLink& link, adapt::LinkScheduler::LoadId id) : link_(link), id_(id) {}

    SharedLink& link_;
    const adapt::LinkScheduler::LoadId id_;
  };

  // `wake` is called from other threads, must not block or call back, and is not called after the
  // member is gone. The link must outlive its members. What happens to the load goes into `log`,
  // unless it is null.
  std::unique_ptr<Member> Join(adapt::LoadSpec spec, std::function<void()> wake,
                               std::unique_ptr<EventLog> log);

  // See adapt::LinkEstimator. Returns the time until the last of these bytes is expected, behind
  // those asked for before, by the estimate as it is; 0 while nothing is known.
  adapt::TimeUs OnAsked(uint64_t bytes);
  void OnBytes(uint64_t bytes);
  void OnDropped(uint64_t bytes);
  void OnFirstByte(adapt::TimeUs elapsed_us, adapt::TimeUs queue_delay_us);
  adapt::LinkView View();

  // How a forecast of OnAsked was kept.
  void OnForecast(adapt::TimeUs expected_us, adapt::TimeUs actual_us);
  // Smoothed |actual - expected| / expected; 0 before the first.
  double forecast_error();

  // See adapt::CircuitBreaker.
  bool Allow();
  void OnSuccess();
  void OnFailure();
  void OnNoVerdict();
  bool breaker_open();

 private:
  using LoadId = adapt::LinkScheduler::LoadId;

  void Apply(LoadId id, const adapt::Event& event);
  void SetPace(LoadId id, const adapt::ComputePace& pace);
  adapt::Actions Decide(LoadId id);
  adapt::TimeUs WakeUs();
  int LoadedStep(LoadId id, uint32_t chunk);
  std::unique_ptr<EventLog> TakeLog(LoadId id);
  void Record(LoadId id, adapt::TimeUs now_us, const adapt::Event& event,
              const adapt::Actions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(LoadId id);

  absl::Mutex mutex_;
  adapt::LinkEstimator estimator_ ABSL_GUARDED_BY(mutex_);
  adapt::LinkScheduler scheduler_ ABSL_GUARDED_BY(mutex_);
  std::map<LoadId, std::function<void()>> wakes_ ABSL_GUARDED_BY(mutex_);
  std::map<LoadId, std::unique_ptr<EventLog>> logs_ ABSL_GUARDED_BY(mutex_);  // of recorded loads
  double forecast_error_ ABSL_GUARDED_BY(mutex_) = 0;
  bool forecast_known_ ABSL_GUARDED_BY(mutex_) = false;
  adapt::CircuitBreaker breaker_ ABSL_GUARDED_BY(mutex_);
  std::minstd_rand jitter_ ABSL_GUARDED_BY(mutex_){static_cast<uint32_t>(NowUs())};
};

}  // namespace sluice::client
