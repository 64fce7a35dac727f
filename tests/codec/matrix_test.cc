#include "codec/matrix.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "codec/elements.h"
#include "codec/transpose.h"

namespace sluice::codec {
namespace {

constexpr unsigned kSeed = 20261202;
constexpr int16_t kLimit = 31000;

std::vector<uint16_t> RandomMatrix(size_t count) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> matrix(count);
  for (uint16_t& element : matrix) element = FloatToBf16(normal(random));
  return matrix;
}

std::vector<uint16_t> Transposed(const std::vector<uint16_t>& matrix, size_t rows, size_t columns) {
  std::vector<uint16_t> out(matrix.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) out[c * rows + r] = matrix[r * columns + c];
  }
  return out;
}

// Integers like those of coefficients: a few leading rows are large.
std::vector<int16_t> RandomValues(size_t rows, size_t tokens, size_t large_rows) {
  std::mt19937 random(kSeed + 1);
  std::vector<int16_t> values(rows * tokens);
  for (size_t i = 0; i < values.size(); ++i) {
    const int limit = i < large_rows * tokens ? 31000 : kMaxBf16Integer;
    values[i] = static_cast<int16_t>(static_cast<int>(random() % (2 * limit + 1)) - limit);
  }
  return values;
}

// Most that rounding of fp32 sums of terms of this total size can be off.
double Slack(double size, size_t terms) {
  return size * 0x1p-24 * (2 + static_cast<double>(terms)) + 1e-30;
}

struct Sizes {
  size_t inputs;
  size_t outputs;
  size_t rows;
  size_t tokens;
  size_t large_rows;
};

void PrintTo(const Sizes& s, std::ostream* os) {
  *os << s.inputs << "x" << s.outputs << ", " << s.rows << " rows, " << s.tokens << " tokens, "
      << s.large_rows << " large";
}

class MatrixTest : public testing::TestWithParam<Sizes> {};

TEST_P(MatrixTest, SynthesizesExactProducts) {
  const Sizes s = GetParam();
  const std::vector<uint16_t> matrix = RandomMatrix(s.inputs * s.outputs);
  const std::vector<int16_t> values = RandomValues(s.rows, s.tokens, s.large_rows);
  const auto packed =
      PackedMatrix::Pack(matrix, MatrixLayout::kInputsByOutputs, s.inputs, s.outputs);
  ASSERT_TRUE(packed.ok()) << packed.status();
  ProductScratch scratch;
  std::vector<float> out(BlockedSize(s.tokens, s.outputs), std::numeric_limits<float>::quiet_NaN());
  const absl::Status status = packed->Synthesize(values, s.tokens, scratch, out);
  ASSERT_TRUE(status.ok()) << status;
  std::vector<double> sums(s.outputs), sizes(s.outputs);
  for (size_t t = 0; t < s.tokens; ++t) {
    sums.assign(s.outputs, 0);
    sizes.assign(s.outputs, 0);
    for (size_t r = 0; r < s.rows; ++r) {
      const double value = values[r * s.tokens + t];
      for (size_t c = 0; c < s.outputs; ++c) {
        const double term = value * Bf16ToFloat(matrix[r * s.outputs + c]);
        sums[c] += term;
        sizes[c] += std::abs(term);
      }
    }
    for (size_t c = 0; c < s.outputs; ++c) {
      ASSERT_NEAR(out[BlockedIndex(s.tokens, t, c)], sums[c], Slack(sizes[c], s.rows))
          << "token " << t << " output " << c;
    }
  }
}

TEST_P(MatrixTest, AnalyzesBothLayoutsAlike) {
  const Sizes s = GetParam();
  const std::vector<uint16_t> matrix = RandomMatrix(s.inputs * s.outputs);
  const auto packed =
      PackedMatrix::Pack(matrix, MatrixLayout::kInputsByOutputs, s.inputs, s.outputs);
  const auto turned = PackedMatrix::Pack(Transposed(matrix, s.inputs, s.outputs),
                                         MatrixLayout::kOutputsByInputs, s.inputs, s.outputs);
  ASSERT_TRUE(packed.ok() && turned.ok());
  const std::vector<uint16_t> y = RandomMatrix(s.tokens * s.inputs);
  ProductScratch scratch;
  std::vector<int16_t> out(s.outputs * s.tokens), again(out.size());
  ASSERT_EQ(*packed->Analyze(y, s.tokens, kLimit, scratch, out), true);
  ASSERT_EQ(*turned->Analyze(y, s.tokens, kLimit, scratch, again), true);
  EXPECT_EQ(out, again);
  std::vector<double> sums(s.outputs), sizes(s.outputs);
  for (size_t t = 0; t < s.tokens; ++t) {
    sums.assign(s.outputs, 0);
    sizes.assign(s.outputs, 0);
    for (size_t i = 0; i < s.inputs; ++i) {
      const double value = Bf16ToFloat(y[t * s.inputs + i]);
      for (size_t c = 0; c < s.outputs; ++c) {
        const double term = value * Bf16ToFloat(matrix[i * s.outputs + c]);
        sums[c] += term;
        sizes[c] += std::abs(term);
      }
    }
    for (size_t c = 0; c < s.outputs; ++c) {
      ASSERT_NEAR(out[c * s.tokens + t], sums[c], 0.5 + Slack(sizes[c], s.inputs))
          << "token " << t << " output " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, MatrixTest,
                         testing::Values(Sizes{1, 1, 1, 1, 0}, Sizes{3, 5, 2, 3, 1},
                                         Sizes{64, 64, 64, 256, 0}, Sizes{192, 192, 130, 7, 5},
                                         Sizes{192, 192, 0, 7, 0}, Sizes{250, 190, 250, 257, 100},
                                         Sizes{384, 384, 65, 600, 65}, Sizes{960, 960, 200, 33, 2},
                                         Sizes{960, 128, 960, 1, 960},
                                         Sizes{4200, 70, 4180, 5, 4120},
                                         Sizes{2112, 64, 2060, 2, 9}));

TEST(PackedMatrixTest, RefusesSizesThatDoNotMatch) {
  const std::vector<uint16_t> matrix(12);
  const auto pack = [&](size_t inputs, size_t outputs) {
    return PackedMatrix::Pack(matrix, MatrixLayout::kInputsByOutputs, inputs, outputs).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(pack(3, 5)));
  EXPECT_TRUE(absl::IsInvalidArgument(pack(0, 4)));
  EXPECT_TRUE(absl::IsInvalidArgument(pack(12, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(pack(PackedMatrix::kMaxSide + 1, 1)));
  const auto packed = PackedMatrix::Pack(matrix, MatrixLayout::kInputsByOutputs, 3, 4);
  ASSERT_TRUE(packed.ok());
  ProductScratch scratch;
  std::vector<float> out(BlockedSize(2, 4));
  std::vector<int16_t> values(2 * 4);
  EXPECT_TRUE(absl::IsInvalidArgument(packed->Synthesize(values, 2, scratch, out)));  // 4 rows
  values.resize(5);
  EXPECT_TRUE(absl::IsInvalidArgument(packed->Synthesize(values, 2, scratch, out)));
  values.resize(6);
  EXPECT_TRUE(packed->Synthesize(values, 2, scratch, out).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(packed->Synthesize(values, 0, scratch, out)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(packed->Synthesize(values, 2, scratch, std::span(out).first(8))));
  const std::vector<uint16_t> y(6);
  std::vector<int16_t> integers(9);
  EXPECT_TRUE(absl::IsInvalidArgument(packed->Analyze(y, 2, kLimit, scratch, integers).status()));
  integers.resize(8);
  EXPECT_TRUE(*packed->Analyze(y, 2, kLimit, scratch, integers));
}

TEST(PackedMatrixTest, TellsWhichColumnsAreReady) {
  constexpr size_t kSide = 200;
  constexpr size_t kTokens = 300;
  const auto packed =
      PackedMatrix::Pack(RandomMatrix(kSide * kSide), MatrixLayout::kInputsByOutputs, kSide, kSide);
  ASSERT_TRUE(packed.ok());
  ProductScratch scratch;
  std::vector<float> whole(BlockedSize(kTokens, kSide)), out(whole.size());
  for (size_t rows : {size_t{0}, size_t{1}, kSide}) {
    for (size_t large_rows : {size_t{0}, rows}) {
      const std::vector<int16_t> values = RandomValues(rows, kTokens, large_rows);
      ASSERT_TRUE(packed->Synthesize(values, kTokens, scratch, whole).ok());
      size_t seen = 0;
      size_t before = 0;
      const auto ready = [&](size_t first_token, size_t num_tokens, size_t num_columns) {
        if (num_columns < before) before = 0;
        for (size_t t = first_token; t < first_token + num_tokens; ++t) {
          for (size_t c = before; c < num_columns; ++c, ++seen) {
            const size_t at = BlockedIndex(kTokens, t, c);
            ASSERT_EQ(out[at], whole[at]) << "token " << t << " column " << c;
          }
        }
        before = num_columns;
      };
      out.assign(out.size(), std::numeric_limits<float>::quiet_NaN());
      ASSERT_TRUE(packed->Synthesize(values, kTokens, scratch, out, ready).ok());
      EXPECT_EQ(seen, kTokens * kSide);
    }
  }
}

TEST(PackedMatrixTest, AnalysisRefusesWhatIsTooLarge) {
  const std::vector<uint16_t> one = {FloatToBf16(1)};
  const auto packed = PackedMatrix::Pack(one, MatrixLayout::kInputsByOutputs, 1, 1);
  ASSERT_TRUE(packed.ok());
  ProductScratch scratch;
  int16_t out = 0;
  const auto fits = [&](float value) {
    const uint16_t y = FloatToBf16(value);
    return *packed->Analyze({&y, 1}, 1, 256, scratch, {&out, 1});
  };
  EXPECT_TRUE(fits(256));
  EXPECT_EQ(out, 256);
  EXPECT_TRUE(fits(-256));
  EXPECT_EQ(out, -256);
  EXPECT_TRUE(fits(2.5f));
  EXPECT_EQ(out, 2);  // ties to even
  EXPECT_FALSE(fits(258));
  EXPECT_FALSE(fits(-1e30f));
  EXPECT_FALSE(fits(std::numeric_limits<float>::infinity()));
  EXPECT_FALSE(fits(std::numeric_limits<float>::quiet_NaN()));
}

TEST(PackedMatrixTest, ThreadsShareAMatrix) {
  constexpr size_t kSide = 192;
  constexpr size_t kThreads = 4;
  const auto packed =
      PackedMatrix::Pack(RandomMatrix(kSide * kSide), MatrixLayout::kInputsByOutputs, kSide, kSide);
  ASSERT_TRUE(packed.ok());
  // More shapes than a matrix keeps products.
  const auto run = [&](size_t first) {
    std::vector<std::vector<float>> results;
    ProductScratch scratch;
    for (size_t i = 0; i < 100; ++i) {
      const size_t tokens = 1 + (first + i) % 100;
      const std::vector<int16_t> values = RandomValues(kSide, tokens, 1);
      std::vector<float> out(BlockedSize(tokens, kSide));
      EXPECT_TRUE(packed->Synthesize(values, tokens, scratch, out).ok());
      results.push_back(std::move(out));
    }
    std::rotate(results.begin(), results.begin() + static_cast<ptrdiff_t>((100 - first) % 100),
                results.end());
    return results;
  };
  std::vector<std::vector<std::vector<float>>> results(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { results[i] = run(25 * i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 1; i < kThreads; ++i) EXPECT_EQ(results[i], results[0]);
}

class TransposeTest : public testing::Test {
 protected:
  ~TransposeTest() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_F(TransposeTest, PartsAddUpToTheValues) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const auto& [rows, tokens, pitch] :
         {std::tuple<size_t, size_t, size_t>{1, 1, 1}, {7, 5, 9}, {33, 300, 64}, {64, 31, 64}}) {
      const std::vector<int16_t> values = RandomValues(rows, tokens, rows / 2);
      const RowsView<const int16_t> view = {values.data(), tokens, rows, tokens};
      std::vector<uint16_t> high(tokens * pitch, 0x7777), low(high);
      std::vector<float> whole(tokens * pitch, 7);
      TransposeToBf16(view, pitch, high.data());
      TransposeLowToBf16(view, pitch, low.data());
      TransposeToFloat(view, pitch, whole.data());
      for (size_t i = 0; i < whole.size(); ++i) {
        const size_t row = i % pitch;
        const float value = row < rows ? values[row * tokens + i / pitch] : 0;
        ASSERT_EQ(Bf16ToFloat(high[i]) + Bf16ToFloat(low[i]), value) << hwy::TargetName(target);
        ASSERT_EQ(whole[i], value);
        if (std::abs(value) <= kMaxBf16Integer) {
          ASSERT_EQ(low[i], 0);
        }
      }
    }
  }
}

TEST_F(TransposeTest, RoundsBlocks) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const auto& [rows, tokens] :
         {std::pair<size_t, size_t>{1, 1}, {64, 256}, {63, 5}, {6, 7}}) {
      std::vector<float> block(tokens * kBlockColumns);
      std::iota(block.begin(), block.end(), -100.0f);
      for (float& value : block) value *= 0.5f;
      const size_t pitch = tokens + 3;
      std::vector<int16_t> out(rows * pitch);
      ASSERT_TRUE(RoundBlock(block.data(), kLimit, {out.data(), pitch, rows, tokens}));
      for (size_t i = 0; i < out.size(); ++i) {
        const size_t t = i % pitch;
        const float expected =
            t < tokens ? std::nearbyint(block[t * kBlockColumns + i / pitch]) : 0;
        ASSERT_EQ(out[i], expected) << hwy::TargetName(target);
      }
      for (float bad : {kLimit + 1.0f, -1e30f, std::numeric_limits<float>::quiet_NaN()}) {
        block.back() = bad;
        EXPECT_FALSE(RoundBlock(block.data(), kLimit, {out.data(), pitch, rows, tokens}));
      }
    }
  }
}

TEST_F(TransposeTest, FindsTheLastRowOfLargeValues) {
  std::vector<int16_t> values(10 * 7, kMaxBf16Integer);
  EXPECT_EQ(RowsOfLargeValues(values, 7), 0u);
  values[4 * 7 + 6] = -kMaxBf16Integer - 1;
  EXPECT_EQ(RowsOfLargeValues(values, 7), 5u);
  values[9 * 7] = std::numeric_limits<int16_t>::min();
  EXPECT_EQ(RowsOfLargeValues(values, 7), 10u);
}

}  // namespace
}  // namespace sluice::codec
