#include "codec/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "codec/row_coding.h"

namespace sluice::codec {
namespace {

TEST(QuantizeTest, ParentsNest) {
  for (int value = -kMaxValue; value <= kMaxValue; ++value) {
    const int parent = ParentOf(static_cast<int16_t>(value));
    EXPECT_LE(std::abs(value - 3 * parent), 1);
    EXPECT_EQ(ParentOf(static_cast<int16_t>(-value)), -parent);
  }
}

TEST(QuantizeTest, ErrorIsWithinTheBoundAtEveryLevel) {
  const uint32_t seed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (double mean : {0.0, 1.0, -40.0, 5000.0}) {
    std::normal_distribution<float> normal(static_cast<float>(mean), 1);
    std::vector<float> row(333);
    for (float& x : row) x = normal(random);
    const float step = 0.37f;
    int32_t mean_parts = 0;
    std::vector<int16_t> values(row.size());
    ASSERT_TRUE(QuantizeRow(row, 4, mean, step, mean_parts, values));
    for (size_t t = 0; t < 4; ++t) EXPECT_EQ(values[t], 0);
    std::vector<float> back(row.size());
    int ratio = 1;
    for (int level = 0; level < 4; ++level, ratio *= 3) {
      const CentroidShift shift = {.one = 40, .more = 12};
      DequantizeRow(values, shift, ratio, mean_parts, step, back);
      for (size_t t = 4; t < row.size(); ++t) {
        const double bound = ratio * step * (0.5 + 40 / 256.0) + kFloatSlack * std::abs(row[t]);
        EXPECT_LE(std::abs(back[t] - row[t]), bound);
      }
      for (int16_t& value : values) value = ParentOf(value);
    }
  }
}

TEST(QuantizeTest, CentroidsLieTowardsZero) {
  const std::vector<int16_t> values = {0, 1, -1, 2, -2, 30000};
  std::vector<float> out(values.size());
  DequantizeRow(values, {.one = 64, .more = 32}, 3, 10 * kMeanParts, 0.5f, out);
  EXPECT_EQ(out, (std::vector<float>{5, 6.125f, 3.875f, 7.8125f, 2.1875f, 45004.8125f}));
}

TEST(QuantizeTest, RefusesIntegersThatAreTooLarge) {
  int32_t mean_parts = 0;
  std::vector<int16_t> values(3);
  const auto quantize = [&](float x, double mean) {
    const std::vector<float> row = {0, static_cast<float>(mean), x};
    return QuantizeRow(row, 1, mean, 1, mean_parts, values);
  };
  EXPECT_TRUE(quantize(kMaxValue, 0));
  EXPECT_TRUE(quantize(-kMaxValue, 0));
  EXPECT_FALSE(quantize(kMaxValue + 1, 0));
  EXPECT_FALSE(quantize(-kMaxValue - 1, 0));
  constexpr double kLargestMean = kMaxMean / kMeanParts;
  EXPECT_TRUE(quantize(kLargestMean + 5, kLargestMean));
  EXPECT_FALSE(quantize(0, kLargestMean + 1));
  EXPECT_FALSE(quantize(0, 1e300));
  for (float x :
       {4e6f, 1e9f, -1e9f, 1e20f, -1e38f, std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(quantize(x, 0)) << x;
    EXPECT_FALSE(quantize(x, -2000)) << x;
  }
}

TEST(QuantizeTest, SpreadLeavesOutTheSinks) {
  const std::vector<float> rows = {1000, 1, 3, 1, 3, -500, 10, 10, 14, 14};
  std::vector<double> means(2);
  const Spread spread = MeasureSpread(rows, 5, 1, means);
  EXPECT_TRUE(spread.finite);
  EXPECT_EQ(means, (std::vector<double>{2, 12}));
  EXPECT_DOUBLE_EQ(spread.rms, std::sqrt((4 * 1 + 4 * 4) / 8.0));
  EXPECT_EQ(spread.largest, 1000);
  EXPECT_EQ(MeasureSpread(rows, 5, 9, means).rms, 0);
}

TEST(QuantizeTest, SpreadFindsNanAndInf) {
  for (float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> rows(40, 1);
    std::vector<double> means(4);
    EXPECT_TRUE(MeasureSpread(rows, 10, 4, means).finite);
    rows[21] = bad;
    EXPECT_FALSE(MeasureSpread(rows, 10, 4, means).finite);
  }
}

}  // namespace
}  // namespace sluice::codec
