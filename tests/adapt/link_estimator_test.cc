#include "adapt/link_estimator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace sluice::adapt {
namespace {

constexpr uint64_t kFrame = 10000;

// Sends frames back to back at `bytes_per_us`; returns the time after the last.
TimeUs Transfer(LinkEstimator& link, TimeUs start_us, int frames, double bytes_per_us) {
  link.OnAsked(kFrame * frames, start_us);
  TimeUs now = start_us;
  for (int i = 1; i <= frames; ++i) {
    now = start_us + static_cast<TimeUs>(static_cast<double>(kFrame) * i / bytes_per_us);
    link.OnBytes(kFrame, now);
  }
  return now;
}

TEST(LinkEstimator, NothingIsKnownAtFirst) {
  LinkEstimator link;
  const LinkView view = link.View(1000);
  EXPECT_EQ(view.bytes_per_s, 0);
  EXPECT_EQ(view.rtt_us, 0);
  EXPECT_FALSE(view.stalled);
}

TEST(LinkEstimator, FindsAConstantRateAndTrustsItAfterEnoughForecasts) {
  LinkEstimator link;
  TimeUs now = Transfer(link, 0, 200, 10);
  EXPECT_NEAR(link.View(now).bytes_per_s, 10e6 * LinkEstimator::kUntrustedFactor, 0.1e6);
  now = Transfer(link, now, 4000, 10);
  EXPECT_NEAR(link.View(now).bytes_per_s, 10e6, 0.3e6);
}

TEST(LinkEstimator, IdleTimeIsNoSample) {
  LinkEstimator link;
  TimeUs now = 0;
  for (int i = 0; i < 60; ++i) now = Transfer(link, now + 2000000, 40, 10);
  EXPECT_NEAR(link.View(now).bytes_per_s, 10e6, 0.5e6);
}

TEST(LinkEstimator, StallShowsAndTheEstimateFalls) {
  LinkEstimator link;
  TimeUs now = Transfer(link, 0, 4000, 10);
  const double before = link.View(now).bytes_per_s;
  link.OnAsked(kFrame, now);
  EXPECT_FALSE(link.View(now + LinkEstimator::kMinStallUs).stalled);
  const LinkView stalled = link.View(now + 3 * LinkEstimator::kMinStallUs);
  EXPECT_TRUE(stalled.stalled);
  EXPECT_LT(stalled.bytes_per_s, before / 2);
  link.OnBytes(kFrame, now + 4 * LinkEstimator::kMinStallUs);
  EXPECT_FALSE(link.View(now + 5 * LinkEstimator::kMinStallUs).stalled);
}

TEST(LinkEstimator, LargeFramesOnASlowLinkAreNoStall) {
  LinkEstimator link;
  TimeUs now = 0;
  link.OnAsked(uint64_t{50} << 20, now);
  for (int i = 0; i < 20; ++i) {
    now += 100000;
    link.OnBytes(uint64_t{1} << 20, now);
  }
  EXPECT_FALSE(link.View(now + 150000).stalled);
}

TEST(LinkEstimator, RoundTripIsTheLeastOfTheLatestLessTheServersQueue) {
  LinkEstimator link;
  link.OnFirstByte(9000, 4000);
  link.OnFirstByte(30000, 0);
  EXPECT_EQ(link.View(0).rtt_us, 5000);
  link.OnFirstByte(100, 900);
  EXPECT_EQ(link.View(0).rtt_us, 0);
}

TEST(LinkEstimator, WhatIsOldCountsForLess) {
  LinkEstimator fresh, aged;
  TimeUs now = Transfer(fresh, 0, 1000, 10);
  Transfer(aged, 0, 1000, 10);
  const TimeUs fresh_end = Transfer(fresh, now, 20, 1);
  const TimeUs aged_start = now + 4 * LinkEstimator::kAgeUs;
  const TimeUs aged_end = Transfer(aged, aged_start, 20, 1);
  EXPECT_LT(aged.View(aged_end).bytes_per_s, fresh.View(fresh_end).bytes_per_s);
  const TimeUs forgotten = aged_end + 100 * LinkEstimator::kAgeUs;
  aged.OnAsked(1, forgotten);
  EXPECT_EQ(aged.View(forgotten).bytes_per_s, 0);
}

TEST(LinkEstimator, DroppedBytesEndTheBusyTime) {
  LinkEstimator link;
  TimeUs now = Transfer(link, 0, 4000, 10);
  link.OnAsked(100, now);
  link.OnDropped(100, now);
  EXPECT_EQ(link.outstanding_bytes(), 0u);
  EXPECT_FALSE(link.View(now + 10000000).stalled);
  EXPECT_NEAR(link.View(now + 10000000).bytes_per_s, 10e6, 0.3e6);
}

// A forecast times the quantile should be kept about nine times in ten on a stationary link.
TEST(LinkEstimator, QuantileCoversMostForecasts) {
  const uint32_t seed = 20240607;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> rate(2, 18);
  LinkEstimator link;
  TimeUs now = 0;
  int kept = 0, judged = 0;
  for (int i = 0; i < 400; ++i) {
    const double forecast = link.View(now).bytes_per_s * 1e-6;
    const TimeUs start = now;
    for (int part = 0; part < 10; ++part) now = Transfer(link, now, 20, rate(random));
    if (i < 50) continue;
    ++judged;
    kept += 10 * 20.0 * kFrame / static_cast<double>(now - start) >= forecast;
  }
  EXPECT_GT(kept, judged * 80 / 100);
  EXPECT_LT(kept, judged);
}

TEST(LinkEstimator, NineOfTenForecastsAreKept) {
  constexpr TimeUs kFrameUs = 1000, kStepUs = 50000, kWarmUs = 20000000, kEndUs = 200000000;
  for (const double spread : {0.1, 0.3, 0.6}) {
    std::mt19937_64 random(1);
    std::lognormal_distribution<double> bytes_per_us(std::log(1000), spread);
    LinkEstimator link;
    link.OnAsked(uint64_t{1} << 40, 0);
    int kept = 0, forecasts = 0;
    double forecast = 0, arrived = 0, rate = 0;
    for (TimeUs now = 0; now < kEndUs; now += kFrameUs) {
      if (now % kStepUs == 0) rate = bytes_per_us(random);
      if (now % LinkEstimator::kHorizonUs == 0) {
        if (now > kWarmUs) {
          ++forecasts;
          kept += arrived >= forecast;
        }
        forecast = link.View(now).bytes_per_s * 1e-6 * LinkEstimator::kHorizonUs;
        arrived = 0;
      }
      link.OnBytes(static_cast<uint64_t>(rate * kFrameUs), now + kFrameUs);
      arrived += rate * kFrameUs;
    }
    EXPECT_NEAR(static_cast<double>(kept) / forecasts, 1 - LinkEstimator::kQuantile, 0.05)
        << spread;
  }
}

}  // namespace
}  // namespace sluice::adapt
