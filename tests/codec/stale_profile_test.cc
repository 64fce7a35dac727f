// A profile that was made for other data of the same geometry: the quality stays within its bound,
// and the rate is told to be unusual.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "codec/bytes.h"
#include "codec/elements.h"
#include "codec/rate_check.h"
#include "tests/codec/level_checks.h"
#include "tests/codec/test_profiles.h"

namespace sluice::codec {
namespace {

constexpr uint32_t kTokens = 256;

// Rows of a cosine transform: neighbouring channels go together.
std::vector<uint16_t> SmoothBasis(size_t n) {
  std::vector<float> basis(n * n);
  for (size_t row = 0; row < n; ++row) {
    const double scale = std::sqrt((row == 0 ? 1.0 : 2.0) / static_cast<double>(n));
    for (size_t c = 0; c < n; ++c) {
      basis[row * n + c] = static_cast<float>(
          scale * std::cos(std::numbers::pi * static_cast<double>((2 * c + 1) * row) /
                           static_cast<double>(2 * n)));
    }
  }
  std::vector<uint16_t> bits(basis.size());
  FloatToElements(ElementType::kBf16, basis, std::as_writable_bytes(std::span(bits)));
  return bits;
}

Geometry TestGeometry() {
  return KeysAndValues(2, 4, 32, ElementType::kBf16,
                       MakeRotaryTable(10000, 32, RotaryLayout::kHalf));
}

std::optional<ChunkRate> RateOf(const TestChunk& chunk, const EncodedChunk& encoded) {
  return codec::RateOf(chunk.profile, *ParseChunkHeader(AsBytes(encoded.container)));
}

// Two profiles of one geometry and different covariance. Their figures are those of chunks of their
// own, as calibration would have measured them.
class StaleProfileTest : public ::testing::Test {
 protected:
  StaleProfileTest() {
    parts_[0] = parts_[1] = MakeProfileParts(TestGeometry(), 2, 0.05, 1);
    for (GroupCalibration& group : parts_[1].calibration.groups) {
      group.basis = SmoothBasis(group.means.size());
    }
    for (ProfileParts& parts : parts_) {
      const EncodedChunk encoded = MakeSpectralChunk(*parts.Make(), 512, kTokens, 5).Encode();
      for (size_t l = 0; l < parts.calibration.levels.size(); ++l) {
        parts.calibration.levels[l].bits_per_element =
            static_cast<float>(encoded.levels[l].bits_per_element);
      }
    }
  }

  // Data of one of them, with the profile of one of them.
  TestChunk MakeData(int data, int profile, uint32_t start_token, uint32_t num_tokens) const {
    TestChunk chunk = MakeSpectralChunk(*parts_[data].Make(), start_token, num_tokens, 6);
    chunk.profile = *parts_[profile].Make();
    return chunk;
  }

  ProfileParts parts_[2];
};

TEST_F(StaleProfileTest, OtherDataStaysWithinTheBoundAtAnUnusualRate) {
  for (const int profile : {0, 1}) {
    SCOPED_TRACE(profile);
    const TestChunk chunk = MakeData(1 - profile, profile, 512, kTokens);
    const EncodedChunk encoded = chunk.Encode();
    CheckLossyLevels(chunk, encoded);
    const auto rate = RateOf(chunk, encoded);
    ASSERT_TRUE(rate);
    EXPECT_TRUE(rate->unusual) << rate->bits << ", usually " << rate->usual;
    EXPECT_NEAR(rate->bits, encoded.levels[2].bits_per_element, 1e-6);
  }
}

TEST_F(StaleProfileTest, ItsOwnDataHasTheUsualRate) {
  for (const int profile : {0, 1}) {
    for (const uint32_t start : {0u, 256u, 4096u}) {
      for (const uint32_t num_tokens : {16u, 40u, 256u}) {
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens at " << start);
        const TestChunk chunk = MakeData(profile, profile, start, num_tokens);
        const auto rate = RateOf(chunk, chunk.Encode());
        ASSERT_TRUE(rate);
        EXPECT_FALSE(rate->unusual) << rate->bits << ", usually " << rate->usual;
      }
    }
  }
}

TEST_F(StaleProfileTest, ExactGroupsHaveAnUnusualRate) {
  TestChunk chunk = MakeData(0, 0, 512, kTokens);
  SetElement(chunk.profile.geometry().planes[0], chunk.planes[0], 7,
             std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(RateOf(chunk, chunk.Encode())->unusual);
}

TEST_F(StaleProfileTest, NothingToCompareWith) {
  TestChunk chunk = MakeData(0, 0, 512, 16);
  EXPECT_FALSE(RateOf(chunk, chunk.Encode({.lossy = false, .lossless = true})));
  ProfileParts parts = parts_[0];
  parts.calibration.levels[2].bits_per_element = 0;
  chunk.profile = *parts.Make();
  EXPECT_FALSE(RateOf(chunk, chunk.Encode()));
  const TestChunk builtin = MakeChunk(TestGeometry(), 0, 16, 1);
  EXPECT_FALSE(RateOf(builtin, builtin.Encode()));
}

}  // namespace
}  // namespace sluice::codec
