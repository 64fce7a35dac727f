#include "sim/load_model.h"

#include <gtest/gtest.h>

namespace sluice::sim {
namespace {

TEST(SimLoadModel, TheLastUnitIsShort) {
  const LoadModel model;
  EXPECT_EQ(model.num_units(512), 2u);
  EXPECT_EQ(model.num_units(513), 3u);
  EXPECT_EQ(model.TokensOf(1, 513), 256u);
  EXPECT_EQ(model.TokensOf(2, 513), 1u);
}

TEST(SimLoadModel, ALadderHoldsItsLevelsAndTheirOverhead) {
  const LoadModel model;
  const adapt::ChunkLadder ladder = model.Ladder(256);
  EXPECT_EQ(ladder.num_tokens, 256u);
  ASSERT_EQ(ladder.step_bytes.size(), model.size_shares.size());
  double sum = 0;
  for (size_t level = 0; level < ladder.step_bytes.size(); ++level) {
    sum += static_cast<double>(ladder.step_bytes[level]);
    const double alone = static_cast<double>(model.LevelBytes(level, 256));
    EXPECT_NEAR(sum, alone * (level == 0 ? 1 : 1 + model.embedding_overhead), 1) << level;
    EXPECT_EQ(ladder.step_loss[level], model.losses[level]);
  }
}

TEST(SimLoadModel, PrefillCostsAStartTokensAndWhatLiesBefore) {
  const LoadModel model;
  EXPECT_GT(model.PrefillUs(256, 16384), model.PrefillUs(256, 0));
  TimeUs units = 0;
  for (uint32_t i = 0; i < 16; ++i) units += model.PrefillUs(256, i * 256);
  const double starts = 15 * model.prefill_start_us;
  EXPECT_NEAR(static_cast<double>(units) - starts, static_cast<double>(model.PrefillUs(4096, 0)),
              16);
}

TEST(SimLoadModel, ACalibratedEngineForecastsThePrefill) {
  const LoadModel model;
  adapt::PrefillCost cost;
  model.Calibrate(cost);
  ASSERT_TRUE(cost.known());
  for (const uint32_t context : {0u, 1024u, 8192u, 32768u}) {
    const double truth = static_cast<double>(model.PrefillUs(256, context));
    EXPECT_NEAR(static_cast<double>(cost.Forecast(256, context)), truth, 0.05 * truth) << context;
  }
}

TEST(SimLoadModel, ASpecDescribesTheLoad) {
  const LoadModel model;
  adapt::PrefillCost cost;
  EXPECT_TRUE(model.Spec(1000, 0, 500000, cost).compute_us.empty());
  model.Calibrate(cost);
  const adapt::LoadSpec spec = model.Spec(1000, 7, 500000, cost);
  EXPECT_EQ(spec.start_us, 7);
  EXPECT_EQ(spec.chunks.size(), 4u);
  EXPECT_EQ(spec.compute_us.size(), 4u);
  EXPECT_EQ(spec.chunks.back().num_tokens, 1000u - 3 * 256);
  EXPECT_EQ(spec.reserve_us, model.first_token_us + model.DecodeUs(256));
  EXPECT_EQ(model.Spec(1000, 0, 10, cost).reserve_us, 10);  // no more than the SLO
}

}  // namespace
}  // namespace sluice::sim
