#include "codec/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace sluice::codec {
namespace {

// rows[dim][token] with a pattern of its own.
std::vector<float> Pattern(size_t dims, size_t tokens) {
  std::vector<float> rows(dims * tokens);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(std::sin(0.37 * i));
  return rows;
}

TEST(RotationTest, AgreesWithTheDefinition) {
  for (RotaryLayout layout : {RotaryLayout::kHalf, RotaryLayout::kInterleaved}) {
    RotaryTable table = MakeRotaryTable(10000, 8, layout);
    table.first_dim = 3;
    const size_t dims = 13;
    for (const auto& [start, tokens] : std::vector<std::pair<uint32_t, uint32_t>>{
             {0, 1}, {5, 33}, {300, 700}, {1 << 20, 256}, {4'000'000'000u, 4}}) {
      const std::vector<float> before = Pattern(dims, tokens);
      std::vector<float> after = before;
      Rotation(table, start, tokens).Rotate(after);
      for (size_t t = 0; t < tokens; ++t) {
        for (size_t d : {0, 1, 2, 11, 12}) {
          EXPECT_EQ(after[d * tokens + t], before[d * tokens + t]);
        }
        for (size_t p = 0; p < 4; ++p) {
          const bool half = layout == RotaryLayout::kHalf;
          const size_t x = (3 + (half ? p : 2 * p)) * tokens + t;
          const size_t y = (3 + (half ? p + 4 : 2 * p + 1)) * tokens + t;
          const double angle =
              (static_cast<double>(start) + static_cast<double>(t)) * table.inverse_frequencies[p];
          EXPECT_NEAR(after[x], before[x] * std::cos(angle) - before[y] * std::sin(angle), 3e-7);
          EXPECT_NEAR(after[y], before[y] * std::cos(angle) + before[x] * std::sin(angle), 3e-7);
        }
      }
    }
  }
}

TEST(RotationTest, UnrotateIsTheInverse) {
  const RotaryTable table = MakeRotaryTable(500000, 64, RotaryLayout::kHalf);
  const Rotation rotation(table, 123456, 100);
  const std::vector<float> before = Pattern(64, 100);
  std::vector<float> rows = before;
  rotation.Rotate(rows);
  EXPECT_NE(rows, before);
  rotation.Unrotate(rows);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(rows[i], before[i], 1e-6);
}

}  // namespace
}  // namespace sluice::codec
