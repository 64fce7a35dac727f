#include "server/class_gate.h"

#include <algorithm>

namespace sluice::server {

void ClassGate::BaseArrived() {
  absl::MutexLock lock(&mutex_);
  ++bases_;
  moved_at_ = absl::Now();
}

void ClassGate::BaseGone(size_t count) {
  absl::MutexLock lock(&mutex_);
  bases_ -= std::min(count, bases_);
}

void ClassGate::BaseMoves() {
  absl::MutexLock lock(&mutex_);
  moved_at_ = absl::Now();
}

void ClassGate::YieldToBases() {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(this, &ClassGate::Clear), kMaxYield);
}

}  // namespace sluice::server
