#include "adapt/prefill_cost.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::adapt {
namespace {

double TrueUs(double n, double ctx) { return 3000 + 125 * n + 0.004 * n * (ctx + n / 2); }

// Reports prefills of many shapes, with noise, slow outliers and a warm-up of thirty times.
PrefillCost Learnt(uint32_t seed, double noise) {
  std::mt19937 random(seed);
  PrefillCost cost;
  cost.OnMeasured(512, 0, static_cast<TimeUs>(30 * TrueUs(512, 0)));
  for (int i = 0; i < 60; ++i) {
    const uint32_t n = 128u << (random() % 5), ctx = 256u * (random() % 100);
    double us = TrueUs(n, ctx) * (1 + noise * (static_cast<double>(random() % 200) / 100 - 1));
    if (random() % 20 == 0) us *= 3;
    cost.OnMeasured(n, ctx, static_cast<TimeUs>(us));
  }
  return cost;
}

TEST(PrefillCost, NothingIsKnownAtFirst) {
  PrefillCost cost;
  EXPECT_FALSE(cost.known());
  EXPECT_EQ(cost.Forecast(100, 0), 0);
  cost.OnMeasured(100, 0, 1000);  // warms up
  cost.OnMeasured(0, 0, 1000);
  cost.OnMeasured(100, 0, 0);
  EXPECT_FALSE(cost.known());
}

TEST(PrefillCost, OneShapeGivesTimePerToken) {
  PrefillCost cost;
  for (int i = 0; i < 4; ++i) cost.OnMeasured(1000, 0, 100000);
  EXPECT_NEAR(cost.Forecast(500, 0), 50000, 10);
  EXPECT_NEAR(cost.scale(), 1, 1e-3);
}

TEST(PrefillCost, ManyShapesGiveTheCurve) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const PrefillCost cost = Learnt(seed, 0.05);
    for (const auto& [n, ctx] :
         {std::pair<uint32_t, uint32_t>{512, 16384}, {256, 0}, {2048, 8192}}) {
      const double forecast = static_cast<double>(cost.Forecast(n, ctx)) * cost.scale();
      EXPECT_NEAR(forecast / TrueUs(n, ctx), 1, 0.12) << "seed " << seed << " " << n << "@" << ctx;
    }
  }
}

TEST(PrefillCost, ASlowEngineRaisesTheScaleAndAnOutlierDoesNot) {
  PrefillCost cost = Learnt(1, 0);
  const double before = cost.scale();
  cost.OnMeasured(512, 1024, static_cast<TimeUs>(40 * TrueUs(512, 1024)));
  EXPECT_NEAR(cost.scale(), before, 0.05);
  for (int i = 0; i < 6; ++i) {
    cost.OnMeasured(512, 1024, static_cast<TimeUs>(3 * TrueUs(512, 1024)));
  }
  EXPECT_NEAR(cost.scale(), 3 * before, 0.3);
}

TEST(PrefillCost, StateSurvives) {
  const PrefillCost before = Learnt(3, 0.05);
  PrefillCost after;
  after.Restore(before.state());
  EXPECT_EQ(after.Forecast(512, 4096), before.Forecast(512, 4096));
  EXPECT_EQ(after.scale(), before.scale());
}

TEST(PrefillCost, NonsenseIsNotRestored) {
  PrefillCost cost;
  cost.Restore({{{0, 0, 5}, {5, 0, -1}, {5, 0, std::nan("")}}, {-1, std::nan(""), 1e300}});
  EXPECT_FALSE(cost.known());
  EXPECT_EQ(cost.scale(), 1);
}

}  // namespace
}  // namespace sluice::adapt
