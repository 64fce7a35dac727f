#include "server/class_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace sluice::server {
namespace {

TEST(ClassGate, NobodyWaitsWithoutBases) {
  ClassGate gate;
  gate.YieldToBases();
  gate.BaseArrived();
  gate.BaseGone();
  gate.BaseGone();  // once too often
  gate.YieldToBases();
}

TEST(ClassGate, ARefinementGoesOnWhenTheLastBaseIsGone) {
  ClassGate gate;
  gate.BaseArrived();
  std::atomic<bool> gone = false;
  std::thread base([&] {
    gone = true;
    gate.BaseGone();
  });
  // Returns after the base is gone, or after the longest wait on a busy machine.
  const absl::Time begin = absl::Now();
  gate.YieldToBases();
  EXPECT_TRUE(gone || absl::Now() - begin >= ClassGate::kMaxYield);
  base.join();
}

TEST(ClassGate, ABaseThatStaysHoldsAFrameUpOnlySoLong) {
  ClassGate gate;
  gate.BaseArrived();
  const absl::Time begin = absl::Now();
  gate.YieldToBases();
  EXPECT_GE(absl::Now() - begin, ClassGate::kMaxYield);
}

}  // namespace
}  // namespace sluice::server
