// Lets the bases of all loads go before the refinements of any.
//
// Each load's own queue orders its asks; this is between loads: before a refinement's next frame, a
// load waits while others have bases under way. Bases that do not move, because their client does
// not read, hold nobody up.
//
// Thread-safe.
#pragma once

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sluice::server {

class ClassGate {
 public:
  static constexpr absl::Duration kMaxYield = absl::Milliseconds(20);  // before one frame
  static constexpr absl::Duration kStuckAfter = absl::Milliseconds(100);

  // A base was asked for; one was answered, cancelled or dropped; a frame of one goes out.
  void BaseArrived();
  void BaseGone(size_t count = 1);
  void BaseMoves();

  // Waits for the bases under way, at most kMaxYield.
  void YieldToBases();

 private:
  bool Clear() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return bases_ == 0 || absl::Now() - moved_at_ > kStuckAfter;
  }

  absl::Mutex mutex_;
  size_t bases_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time moved_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace sluice::server
