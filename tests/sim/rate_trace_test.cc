#include "sim/rate_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace sluice::sim {
namespace {

constexpr TimeUs kSecond = 1000000;

// 10 a second, then nothing, then 20 a second: 30 in 3 s.
RateTrace Steps() { return RateTrace({10, 0, 20}, kSecond); }

TEST(SimRateTrace, RatesHoldForAStepAndRepeat) {
  EXPECT_EQ(Steps().RateAt(0), 10);
  EXPECT_EQ(Steps().RateAt(kSecond - 1), 10);
  EXPECT_EQ(Steps().RateAt(kSecond), 0);
  EXPECT_EQ(Steps().RateAt(3 * kSecond), 10);
  EXPECT_EQ(Steps().RateAt(300 * kSecond + 2 * kSecond), 20);
  EXPECT_EQ(Steps().RateAt(-1), 10);  // time begins at 0
  EXPECT_EQ(Steps().mean(), 10);
}

TEST(SimRateTrace, AmountIsTheRateOverTime) {
  EXPECT_DOUBLE_EQ(Steps().Amount(0, kSecond / 2), 5);
  EXPECT_DOUBLE_EQ(Steps().Amount(kSecond / 2, 2 * kSecond + kSecond / 2), 15);
  EXPECT_DOUBLE_EQ(Steps().Amount(0, 30 * kSecond), 300);
  EXPECT_EQ(Steps().Amount(kSecond, kSecond), 0);
  EXPECT_EQ(Steps().Amount(2 * kSecond, kSecond), 0);
}

TEST(SimRateTrace, TimeOfSkipsWhatCarriesNothing) {
  EXPECT_EQ(Steps().TimeOf(0, 7), 7);
  EXPECT_EQ(Steps().TimeOf(5, 0), kSecond / 2);
  EXPECT_EQ(Steps().TimeOf(10, 0), kSecond);  // the end of the first step, not of the second
  EXPECT_EQ(Steps().TimeOf(1, kSecond), 2 * kSecond + kSecond / 20);
  EXPECT_EQ(Steps().TimeOf(30, 0), 3 * kSecond);
  EXPECT_EQ(Steps().TimeOf(60, kSecond), 7 * kSecond);
}

TEST(SimRateTrace, NothingTakesForever) {
  EXPECT_EQ(ConstantRate(0).TimeOf(1, 0), kNever);
  EXPECT_EQ(RateTrace({}, kSecond).TimeOf(1, 0), kNever);
  EXPECT_EQ(ConstantRate(1e-9).TimeOf(1e9, 0), kNever);
}

TEST(SimRateTrace, WhatIsNoRateCountsAsZero) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const RateTrace trace({-5, kInfinity, std::numeric_limits<double>::quiet_NaN(), 4}, 0);
  for (TimeUs at = 0; at < 3; ++at) EXPECT_EQ(trace.RateAt(at), 0);
  EXPECT_EQ(trace.RateAt(3), 4);
  EXPECT_EQ(trace.step_us(), 1);
}

TEST(SimRateTrace, TimeOfIsTheFirstAtWhichTheAmountHasPassed) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const RateTrace trace =
        ChoiceRate(random, {0, 1000, 5e6}, 0.5, 1 + static_cast<TimeUs>(random() % kSecond), 20)
            .From(static_cast<TimeUs>(random() % kSecond));
    if (trace.mean() <= 0) continue;
    const TimeUs from = static_cast<TimeUs>(random() % (5 * kSecond));
    const double amount = static_cast<double>(1 + random() % 10000000);
    const TimeUs at = trace.TimeOf(amount, from);
    if (at == kNever) continue;
    const double error = 1e-9 * trace.Amount(0, at) + 1e-3;
    EXPECT_GE(trace.Amount(from, at), amount - error);
    EXPECT_LE(trace.Amount(from, at - 1), amount + error);
  }
}

TEST(SimRateTrace, FromMovesTheOrigin) {
  EXPECT_EQ(Steps().From(2 * kSecond).RateAt(0), 20);
  EXPECT_EQ(Steps().From(2 * kSecond).RateAt(kSecond), 10);
  EXPECT_EQ(Steps().From(-kSecond).RateAt(kSecond), 10);
  EXPECT_EQ(Steps().From(5 * kSecond).From(-5 * kSecond).RateAt(kSecond), 0);
  EXPECT_DOUBLE_EQ(Steps().From(2 * kSecond).Amount(0, 2 * kSecond), 30);
  EXPECT_EQ(Steps().From(2 * kSecond).TimeOf(25, 0), kSecond + kSecond / 2);
  EXPECT_EQ(Steps().From(2 * kSecond).Scaled(3).RateAt(0), 60);
  EXPECT_EQ(Steps().WithStep(10).RateAt(20), 20);
}

TEST(SimRateTrace, GeneratorsKeepTheirRangesAndTheirSeed) {
  std::mt19937_64 random(1), again(1);
  const RateTrace uniform = UniformRate(random, 2, 3, 10, 100);
  const RateTrace same = UniformRate(again, 2, 3, 10, 100);
  const RateTrace choice = ChoiceRate(random, {1, 5}, 0.5, 10, 100);
  const RateTrace on_off = OnOffRate(random, {8, 0.25, 10000, 20000, 10000, 20000}, kSecond);
  EXPECT_GE(on_off.period_us(), kSecond);
  for (TimeUs at = 0; at < 1000; at += 10) {
    EXPECT_GE(uniform.RateAt(at), 2);
    EXPECT_LE(uniform.RateAt(at), 3);
    EXPECT_EQ(uniform.RateAt(at), same.RateAt(at));
    EXPECT_TRUE(choice.RateAt(at) == 1 || choice.RateAt(at) == 5);
    EXPECT_TRUE(on_off.RateAt(at * 1000) == 8 || on_off.RateAt(at * 1000) == 2);
  }
}

}  // namespace
}  // namespace sluice::sim
