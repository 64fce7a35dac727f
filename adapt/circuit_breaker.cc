#include "adapt/circuit_breaker.h"

#include <algorithm>

namespace sluice::adapt {

bool CircuitBreaker::Allow(TimeUs now_us) {
  if (!open_) return true;
  if (now_us < retry_us_) return false;
  if (trial_ && now_us < trial_end_us_) return false;
  trial_ = true;
  trial_end_us_ = now_us + kMaxTrialUs;
  return true;
}

void CircuitBreaker::OnSuccess() {
  failures_ = 0;
  open_ = false;
  trial_ = false;
}

void CircuitBreaker::OnFailure(TimeUs now_us, double jitter) {
  // Requests that were let through before it opened say nothing new.
  if (open_ && !trial_) return;
  trial_ = false;
  if (++failures_ < kFailuresToOpen) return;
  open_ = true;
  TimeUs backoff_us = kMinBackoffUs;
  for (int i = kFailuresToOpen; i < failures_ && backoff_us < kMaxBackoffUs; ++i) backoff_us *= 2;
  backoff_us = std::min(backoff_us, kMaxBackoffUs);
  const double share = 0.5 + 0.5 * std::clamp(jitter, 0.0, 1.0);
  retry_us_ = now_us + static_cast<TimeUs>(static_cast<double>(backoff_us) * share);
}

void CircuitBreaker::OnNoVerdict() { trial_ = false; }

CircuitBreaker::State CircuitBreaker::state(TimeUs now_us) const {
  if (!open_) return State::kClosed;
  return now_us < retry_us_ ? State::kOpen : State::kHalfOpen;
}

}  // namespace sluice::adapt
