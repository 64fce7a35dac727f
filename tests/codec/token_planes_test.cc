#include "codec/token_planes.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "codec/elements.h"

namespace sluice::codec {
namespace {

constexpr unsigned kSeed = 20261202;
constexpr std::byte kUntouched{0xa5};

struct Case {
  std::string name;
  ElementType element_type;
  size_t head_dim;
  size_t num_tokens;
  size_t first_column;
  std::optional<RotaryTable> table;
  bool gaps;  // between heads and tokens
};

RotaryTable Table(RotaryLayout layout, uint32_t first_dim, uint32_t rotary_dim) {
  RotaryTable table = MakeRotaryTable(10000, rotary_dim, layout);
  table.first_dim = first_dim;
  return table;
}

std::vector<Case> Cases() {
  const RotaryLayout half = RotaryLayout::kHalf;
  const RotaryLayout neighbours = RotaryLayout::kInterleaved;
  std::vector<Case> cases;
  for (const auto& [type, name] : {std::pair{ElementType::kBf16, "bf16"},
                                   {ElementType::kFp16, "fp16"},
                                   {ElementType::kFp32, "fp32"}}) {
    const std::string prefix = std::string(name) + " ";
    cases.push_back({prefix + "values", type, 64, 256, 0, std::nullopt, false});
    cases.push_back({prefix + "keys", type, 64, 256, 192, Table(half, 0, 64), false});
    cases.push_back({prefix + "one token", type, 128, 1, 128, Table(half, 0, 128), false});
    cases.push_back({prefix + "two blocks", type, 128, 3, 64, Table(neighbours, 0, 128), true});
    cases.push_back({prefix + "80 dims", type, 80, 33, 16, Table(half, 0, 80), true});
    cases.push_back({prefix + "partial", type, 256, 17, 0, Table(half, 0, 64), false});
    cases.push_back({prefix + "latent", type, 576, 3, 64, Table(neighbours, 512, 64), true});
    cases.push_back({prefix + "odd", type, 37, 19, 5, Table(neighbours, 3, 26), true});
    cases.push_back({prefix + "odd halves", type, 37, 19, 5, Table(half, 3, 26), false});
  }
  return cases;
}

// Inputs and room for outputs of a case with 3 heads.
struct Sample {
  static constexpr size_t kHeads = 3;

  explicit Sample(const Case& c) : test(c) {
    std::mt19937 random(kSeed);
    std::normal_distribution<float> normal;
    const size_t channels = kHeads * c.head_dim;
    num_columns = c.first_column + channels + 7;
    means.resize(channels);
    for (float& mean : means) mean = 3 * normal(random);
    x.resize(BlockedSize(c.num_tokens, num_columns));
    for (float& value : x) value = 40 * normal(random);
    plane = {c.element_type, kHeads, c.head_dim, c.first_column, 0.037f, means};
    if (c.table) rotation.emplace(*c.table, 1000, c.num_tokens);
    element_bytes = ElementBytes(c.element_type);
    view = DensePlane<std::byte>(plane, c.num_tokens, nullptr);
    if (c.gaps) {
      // Heads within tokens, as engines have it; bf16 elements then may be at odd addresses.
      view.head_stride = c.head_dim * element_bytes + 1;
      view.token_stride = kHeads * view.head_stride + 5;
    }
    bytes.assign((kHeads - 1) * view.head_stride + (c.num_tokens - 1) * view.token_stride +
                     c.head_dim * element_bytes,
                 kUntouched);
  }

  const TokenRotation* Turn() const { return rotation ? &*rotation : nullptr; }
  size_t At(size_t head, size_t token, size_t dim) const {
    return head * view.head_stride + token * view.token_stride + dim * element_bytes;
  }
  float Element(size_t head, size_t token, size_t dim) const {
    float value = 0;
    ElementsToFloat(test.element_type,
                    std::span(bytes).subspan(At(head, token, dim), element_bytes), {&value, 1});
    return value;
  }
  ColumnTokens Columns(float ratio) const { return {plane, ratio, Turn(), test.num_tokens, x}; }
  // In two parts.
  void Write(float ratio) {
    const size_t middle = test.num_tokens / 3;
    view.data = bytes.data();
    WriteTokens(Columns(ratio), {0, middle}, view);
    view.data += middle * view.token_stride;
    WriteTokens(Columns(ratio), {middle, test.num_tokens}, view);
  }
  ReadReport Read(size_t skip, std::vector<uint16_t>& y) const {
    return ReadTokens(plane, Turn(), test.num_tokens, skip,
                      {bytes.data(), view.head_stride, view.token_stride}, num_columns, y);
  }

  // Turns a head by the definition.
  std::vector<double> Turned(std::vector<double> head, size_t token, double direction) const {
    if (!test.table) return head;
    const RotaryTable& table = *test.table;
    const size_t pairs = table.inverse_frequencies.size();
    for (size_t p = 0; p < pairs; ++p) {
      const bool half = table.layout == RotaryLayout::kHalf;
      double& a = head[table.first_dim + (half ? p : 2 * p)];
      double& b = head[table.first_dim + (half ? p + pairs : 2 * p + 1)];
      const double angle =
          direction * (1000 + static_cast<double>(token)) * table.inverse_frequencies[p];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = turned;
    }
    return head;
  }

  const Case test;
  size_t num_columns = 0;
  size_t element_bytes = 0;
  std::vector<float> means;
  std::vector<float> x;
  TokenPlane plane;
  std::optional<TokenRotation> rotation;
  PlaneView<std::byte> view;
  std::vector<std::byte> bytes;
};

class TokenPlanesTest : public testing::TestWithParam<Case> {
 protected:
  ~TokenPlanesTest() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(TokenPlanesTest, WritesWhatTheDefinitionSays) {
  Sample sample(GetParam());
  const Case& c = GetParam();
  sample.Write(3);
  size_t written = 0;
  for (size_t head = 0; head < Sample::kHeads; ++head) {
    for (size_t t = 0; t < c.num_tokens; ++t) {
      std::vector<double> expected(c.head_dim);
      for (size_t d = 0; d < c.head_dim; ++d) {
        const size_t channel = head * c.head_dim + d;
        const float x = sample.x[BlockedIndex(c.num_tokens, t, c.first_column + channel)];
        expected[d] = 3.0 * x * sample.plane.step + sample.means[channel];
      }
      expected = sample.Turned(expected, t, 1);
      for (size_t d = 0; d < c.head_dim; ++d) {
        const double error = RoundingError(c.element_type, std::abs(expected[d])) + 1e-5;
        ASSERT_NEAR(sample.Element(head, t, d), expected[d], error) << head << " " << t << " " << d;
        written += sample.element_bytes;
        sample.bytes[sample.At(head, t, d)] = kUntouched;
      }
    }
  }
  if (!c.gaps) {
    EXPECT_EQ(written, sample.bytes.size());
  }
}

TEST_P(TokenPlanesTest, ComparesWithWhatItWouldWrite) {
  const Case& c = GetParam();
  Sample sample(c);
  sample.Write(3);
  const size_t begin = c.num_tokens / 2;
  const PlaneView<const std::byte> original = {
      sample.bytes.data() + begin * sample.view.token_stride, sample.view.head_stride,
      sample.view.token_stride};
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    ErrorSums same;
    CompareTokens(sample.Columns(3), {begin, c.num_tokens}, original, same);
    EXPECT_EQ(same.sum, 0) << hwy::TargetName(target);
    EXPECT_EQ(same.largest, 0);
    // Another level's elements, one by one.
    Sample other(c);
    other.Write(1);
    double sum = 0;
    float largest = 0;
    for (size_t head = 0; head < Sample::kHeads; ++head) {
      for (size_t t = begin; t < c.num_tokens; ++t) {
        for (size_t d = 0; d < c.head_dim; ++d) {
          const float error = std::abs(other.Element(head, t, d) - sample.Element(head, t, d));
          sum += error;
          largest = std::max(largest, error);
        }
      }
    }
    ErrorSums sums = {1, 0};
    CompareTokens(other.Columns(1), {begin, c.num_tokens}, original, sums);
    EXPECT_EQ(sums.largest, largest) << hwy::TargetName(target);
    EXPECT_NEAR(sums.sum, 1 + sum, 1e-5 * sum);
  }
}

TEST_P(TokenPlanesTest, LeavesGapsAlone) {
  Sample sample(GetParam());
  const Case& c = GetParam();
  std::vector<bool> is_element(sample.bytes.size());
  for (size_t head = 0; head < Sample::kHeads; ++head) {
    for (size_t t = 0; t < c.num_tokens; ++t) {
      for (size_t i = 0; i < c.head_dim * sample.element_bytes; ++i) {
        is_element[sample.At(head, t, 0) + i] = true;
      }
    }
  }
  sample.Write(1);
  for (size_t i = 0; i < sample.bytes.size(); ++i) {
    if (!is_element[i]) {
      ASSERT_EQ(sample.bytes[i], kUntouched) << i;
    }
  }
}

TEST_P(TokenPlanesTest, ReadsWhatTheDefinitionSays) {
  Sample sample(GetParam());
  const Case& c = GetParam();
  sample.Write(1);
  const size_t skip = c.num_tokens > 4 ? 4 : 0;
  const uint16_t other = 0x1234;
  std::vector<uint16_t> y(c.num_tokens * sample.num_columns, other);
  const ReadReport report = sample.Read(skip, y);
  EXPECT_TRUE(report.finite);
  double largest = 0;
  for (size_t t = 0; t < c.num_tokens; ++t) {
    for (size_t head = 0; head < Sample::kHeads; ++head) {
      std::vector<double> expected(c.head_dim);
      for (size_t d = 0; d < c.head_dim; ++d) expected[d] = sample.Element(head, t, d);
      expected = sample.Turned(expected, t, -1);
      for (size_t d = 0; d < c.head_dim; ++d) {
        const size_t channel = head * c.head_dim + d;
        const double value =
            t < skip ? 0 : (expected[d] - sample.means[channel]) / sample.plane.step;
        largest = std::max(largest, std::abs(value));
        const double error = RoundingError(ElementType::kBf16, std::abs(value)) + 2e-4;
        ASSERT_NEAR(Bf16ToFloat(y[t * sample.num_columns + c.first_column + channel]), value, error)
            << head << " " << t << " " << d;
      }
    }
    for (size_t i = 0; i < sample.num_columns; ++i) {
      if (i >= c.first_column && i < c.first_column + sample.means.size()) continue;
      ASSERT_EQ(y[t * sample.num_columns + i], other);
    }
  }
  EXPECT_NEAR(report.largest, largest, 2e-4);
}

TEST_P(TokenPlanesTest, AllTargetsGiveTheSameBits) {
  std::vector<std::byte> first_bytes;
  std::vector<uint16_t> first_y;
  float first_largest = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    Sample sample(GetParam());
    // Some beyond the range of each type, and in the subnormal range of fp16.
    for (size_t i = 0; i < sample.x.size(); i += 5) sample.x[i] *= 1e5f;
    for (size_t i = 0; i < sample.x.size(); i += 7) sample.x[i] *= 1e37f;
    for (size_t i = 0; i < sample.means.size(); i += 3) sample.means[i] *= 1e-6f;
    for (size_t i = 0; i < sample.x.size(); i += 3) sample.x[i] *= 1e-6f;
    sample.Write(1);
    std::vector<uint16_t> y(sample.test.num_tokens * sample.num_columns);
    const ReadReport report = sample.Read(0, y);
    if (first_bytes.empty()) {
      first_bytes = sample.bytes;
      first_y = y;
      first_largest = report.largest;
    }
    EXPECT_EQ(sample.bytes, first_bytes) << hwy::TargetName(target);
    EXPECT_EQ(y, first_y) << hwy::TargetName(target);
    EXPECT_EQ(report.largest, first_largest) << hwy::TargetName(target);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenPlanesTest, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (c == ' ') c = '_';
  }
  return name;
});

// A plane of one token whose columns are `values`, with mean 0 and step 1.
std::vector<std::byte> Written(ElementType type, const std::vector<float>& values) {
  std::vector<float> x(BlockedSize(1, values.size()));
  std::copy(values.begin(), values.end(), x.begin());
  const std::vector<float> means(values.size());
  const TokenPlane plane = {type, 1, values.size(), 0, 1, means};
  std::vector<std::byte> out(values.size() * ElementBytes(type));
  WriteTokens({plane, 1, nullptr, 1, x}, {0, 1}, DensePlane(plane, 1, out.data()));
  return out;
}

TEST(TokenPlanesRoundingTest, IsThatOfFloatToElements) {
  std::mt19937 random(kSeed);
  std::vector<float> values;
  for (int i = 0; i < 1 << 16; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    const float value = std::bit_cast<float>(i % 2 == 0 ? bits : bits & 0xfffff000);
    if (!std::isnan(value)) values.push_back(value + 0.0f);
  }
  for (float tie : {1.00390625f, 1.01171875f, 65519.996f, 65520.0f, 0x1p-25f, 0x1.8p-24f, 6e-8f}) {
    values.push_back(tie);
    values.push_back(-tie);
  }
  for (ElementType type : {ElementType::kBf16, ElementType::kFp16, ElementType::kFp32}) {
    std::vector<std::byte> expected(values.size() * ElementBytes(type));
    FloatToElements(type, values, expected);
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      EXPECT_EQ(Written(type, values), expected) << hwy::TargetName(target);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(TokenPlanesRoundingTest, NothingWrittenIsInfiniteOrNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values(37, inf), negative(37, -inf), none(37, nan);
  for (ElementType type : {ElementType::kBf16, ElementType::kFp16, ElementType::kFp32}) {
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      for (const auto& [in, expected] : {std::pair{values, LargestElement(type)},
                                         {negative, -LargestElement(type)},
                                         {none, -LargestElement(type)}}) {
        std::vector<float> out(in.size());
        ElementsToFloat(type, Written(type, in), out);
        EXPECT_EQ(out, std::vector<float>(in.size(), expected)) << hwy::TargetName(target);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(TokenPlanesReportTest, FindsOneElementThatIsNotFinite) {
  for (ElementType type : {ElementType::kBf16, ElementType::kFp16, ElementType::kFp32}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      for (size_t at : {0, 17, 36}) {
        std::vector<std::byte> bytes = Written(type, std::vector<float>(37, 1.0f));
        const uint32_t fp32 = std::bit_cast<uint32_t>(bad);
        const uint16_t half = type == ElementType::kBf16 ? FloatToBf16(bad) : FloatToFp16(bad);
        const size_t size = ElementBytes(type);
        std::memcpy(bytes.data() + at * size, size == 2 ? static_cast<const void*>(&half) : &fp32,
                    size);
        const std::vector<float> means(37);
        const TokenPlane plane = {type, 1, 37, 0, 1, means};
        std::vector<uint16_t> y(37);
        const std::byte* const data = bytes.data();
        const ReadReport report =
            ReadTokens(plane, nullptr, 1, 0, DensePlane(plane, 1, data), 37, y);
        EXPECT_FALSE(report.finite);
        EXPECT_TRUE(ReadTokens(plane, nullptr, 1, 1, DensePlane(plane, 1, data), 37, y).finite);
      }
    }
  }
}

TEST(TokenRotationTest, HasRotationsNumbers) {
  for (RotaryLayout layout : {RotaryLayout::kHalf, RotaryLayout::kInterleaved}) {
    const RotaryTable table = Table(layout, 0, 16);
    const size_t tokens = 300;
    // Of a unit vector, a turn leaves cosine and sine.
    std::vector<float> rows(16 * tokens);
    const bool half = layout == RotaryLayout::kHalf;
    for (size_t p = 0; p < 8; ++p) {
      std::fill_n(rows.begin() + static_cast<ptrdiff_t>((half ? p : 2 * p) * tokens), tokens, 1.0f);
    }
    Rotation(table, 7, tokens).Rotate(rows);
    const TokenRotation rotation(table, 7, tokens);
    for (size_t p = 0; p < 8; ++p) {
      for (size_t t = 0; t < tokens; ++t) {
        EXPECT_EQ(rotation.cosines(t)[p], rows[(half ? p : 2 * p) * tokens + t]);
        EXPECT_EQ(rotation.sines(t)[p], rows[(half ? p + 8 : 2 * p + 1) * tokens + t]);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::codec
