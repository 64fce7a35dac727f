// What is known of the link to one server: estimator and circuit breaker, shared by its loads.
//
// Thread-safe. Reads the clock, so that adapt/ need not.
#pragma once

#include <cstdint>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "adapt/circuit_breaker.h"
#include "adapt/link_estimator.h"

namespace sluice::client {

// The monotonic clock of all loads, us.
adapt::TimeUs NowUs();

class LinkMonitor {
 public:
  // See adapt::LinkEstimator.
  void OnAsked(uint64_t bytes);
  void OnBytes(uint64_t bytes);
  void OnDropped(uint64_t bytes);
  void OnFirstByte(adapt::TimeUs elapsed_us, adapt::TimeUs queue_delay_us);
  adapt::LinkView View();

  // See adapt::CircuitBreaker.
  bool Allow();
  void OnSuccess();
  void OnFailure();
  void OnNoVerdict();
  bool breaker_open();

 private:
  absl::Mutex mutex_;
  adapt::LinkEstimator estimator_ ABSL_GUARDED_BY(mutex_);
  adapt::CircuitBreaker breaker_ ABSL_GUARDED_BY(mutex_);
  std::minstd_rand jitter_ ABSL_GUARDED_BY(mutex_){static_cast<uint32_t>(NowUs())};
};

}  // namespace sluice::client
