#include "codec/calibrate/attention_rule.h"

#include <gtest/gtest.h>

#include "tests/codec/test_chunks.h"

namespace sluice::codec {
namespace {

constexpr size_t kDim = 4;
constexpr size_t kHeads = 2;

// Planes of three model layers, all with variance 1 and mean 0.
struct Case {
  Case() : statistics(6) {
    contexts.geometry = KeysAndValues(3, kHeads, kDim, ElementType::kBf16, MakeTable());
    for (PlaneStatistics& plane : statistics) {
      plane = {.means = std::vector<double>(kHeads * kDim),
               .variances = std::vector<double>(kHeads * kDim, 1),
               .rms = 1,
               .constant = false};
    }
  }

  static RotaryTable MakeTable() { return MakeRotaryTable(10'000, kDim, RotaryLayout::kHalf); }
  std::vector<std::vector<float>> Queries() const { return GuessQueries(contexts, statistics); }
  std::vector<std::vector<double>> Costs() const {
    return GuessSensitivities(contexts, statistics, Queries());
  }

  Contexts contexts;
  std::vector<PlaneStatistics> statistics;
};

TEST(AttentionRuleTest, QueriesAreLikeKeysInPairsThatTurnTogether) {
  Case c;
  c.statistics[0].means[1] = 3;  // of dimensions 1 and 3, squares 10 and 1
  const auto queries = c.Queries();
  ASSERT_EQ(queries[0].size(), kHeads * kDim * kDim);
  EXPECT_FLOAT_EQ(queries[0][0], 1);
  EXPECT_FLOAT_EQ(queries[0][1 * kDim + 1], 5.5);
  EXPECT_FLOAT_EQ(queries[0][3 * kDim + 3], 5.5);
  EXPECT_FLOAT_EQ(queries[0][1], 0);
  EXPECT_TRUE(queries[1].empty());
}

TEST(AttentionRuleTest, ValuesOfEarlyModelLayersCostMost) {
  const auto costs = Case().Costs();
  EXPECT_GT(costs[1][0], 5 * costs[3][0]);
  EXPECT_GT(costs[3][0], 5 * costs[5][0]);
  EXPECT_DOUBLE_EQ(costs[0][0], costs[4][0]);
}

TEST(AttentionRuleTest, HeadsWhoseScoresVaryCostMore) {
  Case c;
  c.statistics[2].means[kDim] = 10;  // large keys, so large queries, in the second head
  const auto costs = c.Costs();
  for (size_t plane : {2, 3}) {
    EXPECT_GT(costs[plane][1], 2 * costs[plane][0]);
    EXPECT_GT(costs[plane][0], 0.05 * costs[plane][1]);
  }
  EXPECT_DOUBLE_EQ(costs[0][0], costs[0][1]);
}

TEST(AttentionRuleTest, UnitsOfAPlaneDoNotMatter) {
  Case c;
  const double cost = c.Costs()[3][0];
  for (double& variance : c.statistics[3].variances) variance *= 100;
  c.statistics[3].rms *= 10;
  EXPECT_NEAR(c.Costs()[3][0], cost / 100, 1e-9 * cost);
}

TEST(AttentionRuleTest, ConstantPlanesHaveNone) {
  Case c;
  c.statistics[2].constant = true;
  EXPECT_TRUE(c.Queries()[2].empty());
  EXPECT_TRUE(c.Costs()[2].empty());
}

}  // namespace
}  // namespace sluice::codec
