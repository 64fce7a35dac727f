#include "adapt/circuit_breaker.h"

#include <gtest/gtest.h>

namespace sluice::adapt {
namespace {

using State = CircuitBreaker::State;

// Opens at time 0 with the longest back-off, which ends at kMinBackoffUs.
CircuitBreaker Opened() {
  CircuitBreaker breaker;
  for (int i = 0; i < CircuitBreaker::kFailuresToOpen; ++i) breaker.OnFailure(0, 1.0);
  return breaker;
}

TEST(CircuitBreaker, OpensAfterFailuresInARow) {
  CircuitBreaker breaker;
  for (int i = 0; i + 1 < CircuitBreaker::kFailuresToOpen; ++i) breaker.OnFailure(0, 1.0);
  EXPECT_TRUE(breaker.Allow(0));
  breaker.OnSuccess();
  for (int i = 0; i + 1 < CircuitBreaker::kFailuresToOpen; ++i) breaker.OnFailure(0, 1.0);
  EXPECT_EQ(breaker.state(0), State::kClosed);
  breaker.OnFailure(0, 1.0);
  EXPECT_EQ(breaker.state(0), State::kOpen);
  EXPECT_FALSE(breaker.Allow(CircuitBreaker::kMinBackoffUs - 1));
}

TEST(CircuitBreaker, LetsOneThroughWhenTheBackoffIsOver) {
  CircuitBreaker breaker = Opened();
  const TimeUs now = CircuitBreaker::kMinBackoffUs;
  EXPECT_EQ(breaker.state(now), State::kHalfOpen);
  EXPECT_TRUE(breaker.Allow(now));
  EXPECT_FALSE(breaker.Allow(now));
  breaker.OnSuccess();
  EXPECT_EQ(breaker.state(now), State::kClosed);
  EXPECT_TRUE(breaker.Allow(now));
}

TEST(CircuitBreaker, BackoffDoublesUpToItsLimit) {
  CircuitBreaker breaker = Opened();
  TimeUs expected = CircuitBreaker::kMinBackoffUs;
  TimeUs now = expected;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(breaker.Allow(now));
    breaker.OnFailure(now, 1.0);
    expected = std::min(2 * expected, CircuitBreaker::kMaxBackoffUs);
    EXPECT_FALSE(breaker.Allow(now + expected - 1));
    now += expected;
  }
}

TEST(CircuitBreaker, JitterShortensTheBackoffByHalfAtMost) {
  CircuitBreaker breaker;
  for (int i = 0; i < CircuitBreaker::kFailuresToOpen; ++i) breaker.OnFailure(0, 0.0);
  EXPECT_FALSE(breaker.Allow(CircuitBreaker::kMinBackoffUs / 2 - 1));
  EXPECT_TRUE(breaker.Allow(CircuitBreaker::kMinBackoffUs / 2));
}

TEST(CircuitBreaker, ATrialWithoutVerdictDoesNotBlockForEver) {
  CircuitBreaker breaker = Opened();
  const TimeUs now = CircuitBreaker::kMinBackoffUs;
  EXPECT_TRUE(breaker.Allow(now));
  breaker.OnNoVerdict();
  EXPECT_TRUE(breaker.Allow(now));
  EXPECT_FALSE(breaker.Allow(now));
  EXPECT_TRUE(breaker.Allow(now + CircuitBreaker::kMaxTrialUs));
}

TEST(CircuitBreaker, LateFailuresOfEarlierRequestsDoNotProlong) {
  CircuitBreaker breaker = Opened();
  breaker.OnFailure(CircuitBreaker::kMinBackoffUs / 2, 1.0);
  EXPECT_TRUE(breaker.Allow(CircuitBreaker::kMinBackoffUs));
}

}  // namespace
}  // namespace sluice::adapt
