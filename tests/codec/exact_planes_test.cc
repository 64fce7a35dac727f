#include "codec/exact_planes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

constexpr ElementType kTypes[] = {ElementType::kBf16,    ElementType::kFp16,
                                  ElementType::kFp32,    ElementType::kFp8E4M3,
                                  ElementType::kFp8E5M2, ElementType::kBytes};

PlaneSpec Spec(ElementType type, uint32_t num_heads, uint32_t head_dim) {
  return {.element_type = type, .num_heads = num_heads, .head_dim = head_dim};
}

std::string Encode(const PlaneSpec& spec, uint32_t num_tokens, const std::string& plane) {
  ByteWriter writer;
  EncodeExactPlane(spec, num_tokens, AsBytes(plane), writer);
  return std::move(writer).Take();
}

absl::Status Decode(const PlaneSpec& spec, uint32_t num_tokens, std::string_view coded,
                    std::string& plane) {
  ByteReader reader(AsBytes(coded));
  const absl::Status status = DecodeExactPlane("plane 3", spec, num_tokens, reader,
                                               std::as_writable_bytes(std::span(plane)));
  return status.ok() ? reader.ExpectEnd("plane 3") : status;
}

// Normal values as bf16 (the upper half of a float), fp32, or bytes of any kind.
std::string RandomPlane(const PlaneSpec& spec, uint32_t num_tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::string plane;
  while (plane.size() < num_tokens * spec.bytes_per_token()) {
    const float value = normal(random);
    const char* bytes = reinterpret_cast<const char*>(&value);
    const size_t size = ElementBytes(spec.element_type);
    plane.append(bytes + sizeof(value) - size, size);
  }
  return plane;
}

TEST(ExactPlanesTest, RoundTripsEveryType) {
  for (const ElementType type : kTypes) {
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(absl::StrCat("type ", static_cast<int>(type), ", seed ", seed));
      std::mt19937 random(seed);
      const PlaneSpec spec = Spec(type, 1 + random() % 8, 1 + random() % 130);
      const uint32_t num_tokens = random() % 300;  // some planes have several pieces
      const std::string plane = RandomPlane(spec, num_tokens, seed);
      std::string decoded(plane.size(), '?');
      const absl::Status status =
          Decode(spec, num_tokens, Encode(spec, num_tokens, plane), decoded);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(decoded, plane);
    }
  }
}

TEST(ExactPlanesTest, KeepsEveryBitPattern) {
  std::string plane;
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    plane += static_cast<char>(i);
    plane += static_cast<char>(i >> 8);
  }
  for (const ElementType type : {ElementType::kBf16, ElementType::kFp16}) {
    const PlaneSpec spec = Spec(type, 1, 256);
    std::string decoded(plane.size(), '?');
    ASSERT_TRUE(Decode(spec, 256, Encode(spec, 256, plane), decoded).ok());
    EXPECT_EQ(decoded, plane);
  }
}

TEST(ExactPlanesTest, SmallerForBf16) {
  const PlaneSpec spec = Spec(ElementType::kBf16, 8, 128);
  const std::string plane = RandomPlane(spec, 256, 1);
  EXPECT_LT(Encode(spec, 256, plane).size(), plane.size() * 0.68);
}

TEST(ExactPlanesTest, DamageIsAnErrorOrAnyValueNeverACrash) {
  const PlaneSpec spec = Spec(ElementType::kBf16, 2, 32);
  const std::string plane = RandomPlane(spec, 16, 1);
  const std::string coded = Encode(spec, 16, plane);
  std::string out(plane.size(), '\0');
  for (size_t size = 0; size < coded.size(); ++size) {
    EXPECT_THAT(std::string(Decode(spec, 16, coded.substr(0, size), out).message()),
                HasSubstr("plane 3"));
  }
  for (size_t bit = 0; bit < 8 * coded.size(); ++bit) {
    std::string damaged = coded;
    damaged[bit / 8] ^= 1 << bit % 8;
    const absl::Status status = Decode(spec, 16, damaged, out);
    if (!status.ok()) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("plane 3"));
    }
  }
}

TEST(ExactPlanesTest, TheBufferMustFit) {
  const PlaneSpec spec = Spec(ElementType::kBf16, 2, 32);
  std::string out(10, '\0');
  EXPECT_EQ(Decode(spec, 16, "", out).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::codec
