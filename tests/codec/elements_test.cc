#include "codec/elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace sluice::codec {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(ElementsTest, EveryBf16AndFp16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (std::isnan(Bf16ToFloat(half))) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(Bf16ToFloat(half)))));
    } else {
      EXPECT_EQ(FloatToBf16(Bf16ToFloat(half)), half);
    }
    if (std::isnan(Fp16ToFloat(half))) {
      EXPECT_TRUE(std::isnan(Fp16ToFloat(FloatToFp16(Fp16ToFloat(half)))));
    } else {
      EXPECT_EQ(FloatToFp16(Fp16ToFloat(half)), half);
    }
  }
}

TEST(ElementsTest, Fp16ByDefinition) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const int exponent = static_cast<int>(bits >> 10);
    const double mantissa = bits & 0x3ff;
    const double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    EXPECT_EQ(Fp16ToFloat(static_cast<uint16_t>(bits)), expected);
    EXPECT_EQ(Fp16ToFloat(static_cast<uint16_t>(bits | 0x8000)), -expected);
  }
  EXPECT_EQ(Fp16ToFloat(0x7c00), kInfinity);
  EXPECT_EQ(Fp16ToFloat(0xfc00), -kInfinity);
}

// Between neighbours `low` and `high` the middle goes to the even one, and the rest to the nearer.
template <typename ToFloat, typename FromFloat>
void CheckRounding(uint16_t low, ToFloat to_float, FromFloat from_float) {
  const auto high = static_cast<uint16_t>(low + 1);
  const float middle = static_cast<float>((double{to_float(low)} + double{to_float(high)}) / 2);
  EXPECT_EQ(from_float(middle), low % 2 == 0 ? low : high);
  EXPECT_EQ(from_float(std::nextafter(middle, 0.0f)), low);
  EXPECT_EQ(from_float(std::nextafter(middle, kInfinity)), high);
  EXPECT_EQ(from_float(-middle), (low % 2 == 0 ? low : high) | 0x8000);
}

TEST(ElementsTest, RoundsToNearestTiesToEven) {
  for (uint16_t low = 0; low < 0x7bff; ++low) CheckRounding(low, Fp16ToFloat, FloatToFp16);
  for (uint16_t low = 0; low < 0x7f7f; ++low) CheckRounding(low, Bf16ToFloat, FloatToBf16);
}

TEST(ElementsTest, ValuesBeyondTheRangeBecomeTheLargest) {
  for (ElementType type : {ElementType::kBf16, ElementType::kFp16, ElementType::kFp32}) {
    const std::vector<float> values = {kInfinity, -kInfinity, 3e38f * 1.1f};
    std::vector<std::byte> bytes(values.size() * ElementBytes(type));
    std::vector<float> back(values.size());
    FloatToElements(type, values, bytes);
    ElementsToFloat(type, bytes, back);
    EXPECT_EQ(back[0], LargestElement(type));
    EXPECT_EQ(back[1], -LargestElement(type));
    EXPECT_TRUE(std::isfinite(back[2]));
  }
}

TEST(ElementsTest, RoundingErrorIsTheBound) {
  const uint32_t seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(-30, 15);
  for (ElementType type : {ElementType::kBf16, ElementType::kFp16, ElementType::kFp32}) {
    double closest = 0;
    for (int i = 0; i < 100000; ++i) {
      const double exact = std::exp2(exponent(random));
      const float value = static_cast<float>(exact);
      std::byte bytes[4];
      float back = 0;
      FloatToElements(type, {&value, 1}, std::span(bytes).first(ElementBytes(type)));
      ElementsToFloat(type, std::span(bytes).first(ElementBytes(type)), {&back, 1});
      const double error = std::abs(back - exact);
      EXPECT_LE(error, RoundingError(type, exact) * (1 + 1e-4));
      closest = std::max(closest, error / RoundingError(type, exact));
    }
    EXPECT_GT(closest, 0.9);
  }
}

TEST(ElementsTest, AnyAlignment) {
  std::vector<std::byte> bytes(1 + 4 * 10);
  std::vector<float> values = {0, 1, -2, 3.5f, 4, 5, 6, 7, 8, 9};
  std::vector<float> back(values.size());
  for (ElementType type : {ElementType::kBf16, ElementType::kFp16, ElementType::kFp32}) {
    const auto unaligned = std::span(bytes).subspan(1, values.size() * ElementBytes(type));
    FloatToElements(type, values, unaligned);
    ElementsToFloat(type, unaligned, back);
    EXPECT_EQ(back, values);
  }
}

}  // namespace
}  // namespace sluice::codec
