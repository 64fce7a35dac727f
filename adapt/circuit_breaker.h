// Keeps requests away from a server that has just failed, so that a dead server costs nothing.
//
// Closed: requests go through. Open: none do, for a back-off that doubles with every further
// failure. Half-open, when the back-off is over: one request goes through; its verdict closes or
// opens. Pure; one thread at a time. Times are microseconds on the caller's monotonic clock.
#pragma once

#include "adapt/load_types.h"

namespace sluice::adapt {

class CircuitBreaker {
 public:
  static constexpr int kFailuresToOpen = 2;  // in a row
  static constexpr TimeUs kMinBackoffUs = 200000;
  static constexpr TimeUs kMaxBackoffUs = 10 * 1000000;
  static constexpr TimeUs kMaxTrialUs = 30 * 1000000;  // a trial without verdict is given up

  enum class State { kClosed, kOpen, kHalfOpen };

  // May a request be made now? A request that may must be followed by one of the verdicts below.
  bool Allow(TimeUs now_us);
  void OnSuccess();
  // `jitter` in [0, 1) spreads the trials of many clients over the second half of the back-off.
  void OnFailure(TimeUs now_us, double jitter);
  // The request ended without saying anything of the server.
  void OnNoVerdict();

  State state(TimeUs now_us) const;

 private:
  int failures_ = 0;  // in a row
  bool open_ = false;
  bool trial_ = false;   // a half-open request is under way
  TimeUs retry_us_ = 0;  // end of the back-off
  TimeUs trial_end_us_ = 0;
};

}  // namespace sluice::adapt
