#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "codec/bytes.h"
#include "tests/codec/level_checks.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

TEST(EncodeDecodeTest, LevelsOfEveryGeometry) {
  for (const GeometryCase& c : GeometryCases()) {
    SCOPED_TRACE(c.name);
    const TestChunk chunk = MakeChunk(c.geometry, 0, 100, 1, c.mean);
    const EncodedChunk encoded = chunk.Encode({.lossy = true, .lossless = true});
    ASSERT_EQ(encoded.levels.size(), 4u);
    CheckLossyLevels(chunk, encoded);
    const auto exact = DecodeChunk(chunk.profile, AsBytes(encoded.container), kLossless);
    ASSERT_TRUE(exact.ok()) << exact.status();
    EXPECT_EQ(*exact, chunk.planes);
    EXPECT_EQ(encoded.levels[3].max_error, 0);
  }
}

TEST(EncodeDecodeTest, AnyNumberOfTokensAnywhere) {
  const Geometry geometry = KeysAndValues(1, 2, 64, ElementType::kBf16, HalfTable(64));
  for (uint32_t num_tokens : {1, 3, 4, 5, 31, 32, 33, 256, 300}) {
    for (uint32_t start : {0u, 256u, 1'000'000u, 0xfffff000u}) {
      SCOPED_TRACE(testing::Message() << num_tokens << " tokens at " << start);
      const TestChunk chunk = MakeChunk(geometry, start, num_tokens, num_tokens);
      CheckLossyLevels(chunk, chunk.Encode());
    }
  }
}

TEST(EncodeDecodeTest, SpendsAboutThreeBitsAndUnrotationPays) {
  const TestChunk turned =
      MakeChunk(KeysAndValues(1, 8, 128, ElementType::kBf16, HalfTable(128)), 512, 256, 3, 5);
  TestChunk unknown = turned;
  unknown.profile = *Profile::Builtin(KeysAndValues(1, 8, 128));
  const EncodedChunk good = turned.Encode();
  EXPECT_LT(good.levels[2].bits_per_element, 3.3);
  EXPECT_LT(good.levels[1].bits_per_element, 1.8);
  const EncodedChunk poor = unknown.Encode();
  const double good_cost = good.levels[2].bits_per_element + std::log2(good.levels[2].mean_error);
  const double poor_cost = poor.levels[2].bits_per_element + std::log2(poor.levels[2].mean_error);
  EXPECT_LT(good_cost + 0.3, poor_cost);
}

TEST(EncodeDecodeTest, PlanesThatCannotBeQuantisedAreExact) {
  const Geometry geometry = KeysAndValues(3, 2, 32);
  TestChunk chunk = MakeChunk(geometry, 0, 64, 5);
  const PlaneSpec& spec = geometry.planes[0];
  SetElement(spec, chunk.planes[0], 777, 0);
  chunk.planes[0][2 * 777] = '\x81';  // NaN
  chunk.planes[0][2 * 777 + 1] = '\x7f';
  chunk.planes[1][2 * 4000] = '\x80';  // -Inf
  chunk.planes[1][2 * 4000 + 1] = '\xff';
  chunk.planes[2].assign(chunk.planes[2].size(), '\0');
  SetElement(spec, chunk.planes[3], 500, 1e30f);  // one outlier would need integers too large
  for (size_t k = 0; k < 64 * 64; ++k) SetElement(spec, chunk.planes[4], k, 3.5f);
  const EncodedChunk encoded = chunk.Encode();
  for (Level level : {0, 1, 2}) {
    const auto planes = DecodeChunk(chunk.profile, AsBytes(encoded.container), level);
    ASSERT_TRUE(planes.ok()) << planes.status();
    for (size_t i : {0, 1, 2, 4}) EXPECT_EQ((*planes)[i], chunk.planes[i]) << i;
    EXPECT_NE((*planes)[5], chunk.planes[5]);
  }
  CheckLossyLevels(MakeChunk(geometry, 0, 64, 5), MakeChunk(geometry, 0, 64, 5).Encode());

  TestChunk zero = MakeChunk(geometry, 0, 256, 5);
  for (std::string& plane : zero.planes) plane.assign(plane.size(), '\0');
  EXPECT_LT(zero.Encode().levels[2].bits_per_element, 0.1);
}

TEST(EncodeDecodeTest, OutliersAreEscaped) {
  const Geometry geometry = KeysAndValues(1, 2, 64, ElementType::kFp32, HalfTable(64));
  TestChunk chunk = MakeChunk(geometry, 256, 256, 9);
  for (size_t k = 5; k < 64 * 256; k += 2000) {
    SetElement(geometry.planes[0], chunk.planes[0], k, 300);
    SetElement(geometry.planes[1], chunk.planes[1], k, -5000);
  }
  CheckLossyLevels(chunk, chunk.Encode());
}

TEST(EncodeDecodeTest, SinksDoNotDisturbTheRest) {
  const Geometry geometry = KeysAndValues(1, 2, 64);
  TestChunk chunk = MakeChunk(geometry, 0, 256, 11);
  const double before = chunk.Encode().levels[2].bits_per_element;
  for (size_t head = 0; head < 2; ++head) {
    for (size_t k = 0; k < 4 * 64; ++k) {
      SetElement(geometry.planes[0], chunk.planes[0], head * 256 * 64 + k, 1e4f);
    }
  }
  const EncodedChunk encoded = chunk.Encode();
  EXPECT_NEAR(encoded.levels[2].bits_per_element, before, 0.1);
  CheckLossyLevels(chunk, encoded);
}

TEST(EncodeDecodeTest, GeometryWithoutQuantisablePlanesIsLosslessOnly) {
  for (ElementType type : {ElementType::kFp8E4M3, ElementType::kFp8E5M2}) {
    const TestChunk chunk = MakeChunk(KeysAndValues(2, 2, 64, type), 0, 64, 1);
    EXPECT_EQ(chunk.profile.num_levels(), 0);
    const EncodedChunk encoded = chunk.Encode();
    ASSERT_EQ(encoded.levels.size(), 1u);
    EXPECT_EQ(encoded.levels[0].level, kLossless);
    EXPECT_EQ(*DecodeChunk(chunk.profile, AsBytes(encoded.container), kLossless), chunk.planes);
  }
}

TEST(EncodeDecodeTest, HeaderAgreesWithTheReport) {
  const TestChunk chunk = MakeChunk(KeysAndValues(2, 2, 64), 0, 64, 1);
  const EncodedChunk encoded = chunk.Encode({.lossy = true, .lossless = true});
  const auto header = VerifyContainer(AsBytes(encoded.container));
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->layers.size(), 4u);
  for (size_t l = 0; l < 3; ++l) {
    EXPECT_EQ(header->LayerOffset(l + 1), encoded.levels[l].bytes);
    EXPECT_GT(header->layers[l].mean_error, 0);
    EXPECT_GT(header->layers[l].max_error, header->layers[l].mean_error);
  }
  EXPECT_EQ(header->layers[3].max_error, 0);
  EXPECT_EQ(encoded.levels[3].bytes, header->header_bytes + header->layers[3].bytes());
}

TEST(EncodeDecodeTest, EveryFlippedBitIsRefused) {
  const TestChunk chunk = MakeChunk(KeysAndValues(1, 1, 8), 0, 40, 2);
  const std::string good = chunk.Encode({.lossy = true, .lossless = true}).container;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    const bool lossy = DecodeChunk(chunk.profile, AsBytes(bad), 2).ok();
    const bool exact = DecodeChunk(chunk.profile, AsBytes(bad), kLossless).ok();
    EXPECT_FALSE(lossy && exact) << "bit " << bit;
  }
}

TEST(EncodeDecodeTest, RefusesTheWrongProfile) {
  const TestChunk chunk = MakeChunk(KeysAndValues(1, 2, 64), 0, 64, 1);
  const EncodedChunk encoded = chunk.Encode();
  const Profile other = *Profile::Builtin(KeysAndValues(1, 2, 65));
  const absl::Status status = DecodeChunk(other, AsBytes(encoded.container), 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("profile_id"));
}

TEST(EncodeDecodeTest, DecoderRefusesWrongArguments) {
  const TestChunk chunk = MakeChunk(KeysAndValues(1, 1, 8), 0, 40, 2);
  const std::string container = chunk.Encode().container;
  const ChunkHeader header = *ParseChunkHeader(AsBytes(container));
  std::string key(chunk.planes[0].size(), '\0');
  std::string value = key;
  const auto decode = [&](size_t group, Level level, size_t num_segments, size_t value_bytes) {
    auto segments = SegmentsOf(header, AsBytes(container), 0, 2);
    segments.resize(num_segments);
    const std::vector<std::span<std::byte>> planes = {
        std::as_writable_bytes(std::span(key)),
        std::as_writable_bytes(std::span(value)).first(value_bytes)};
    return DecodeGroup(chunk.profile, header, group, level, segments, planes);
  };
  EXPECT_TRUE(decode(0, 2, 3, value.size()).ok());
  EXPECT_THAT(std::string(decode(1, 2, 3, value.size()).message()), HasSubstr("group 1"));
  EXPECT_THAT(std::string(decode(0, 3, 3, value.size()).message()), HasSubstr("level 3"));
  EXPECT_THAT(std::string(decode(0, kLossless, 1, value.size()).message()), HasSubstr("lossless"));
  EXPECT_THAT(std::string(decode(0, 2, 2, value.size()).message()), HasSubstr("segments"));
  EXPECT_THAT(std::string(decode(0, 2, 3, value.size() - 1).message()), HasSubstr("planes[1]"));
}

TEST(EncodeDecodeTest, EncoderRefusesWrongArguments) {
  const TestChunk chunk = MakeChunk(KeysAndValues(1, 1, 8), 0, 40, 2);
  const auto encode = [&](uint32_t start, uint32_t num_tokens, size_t num_planes, bool lossy) {
    auto planes = chunk.spans();
    planes.resize(num_planes);
    ChunkIdentity identity;
    identity.start_token = start;
    const EncodeOptions options = {.lossy = lossy, .lossless = false};
    return EncodeChunk(chunk.profile, identity, planes, num_tokens, options).status();
  };
  EXPECT_TRUE(encode(0, 40, 2, true).ok());
  EXPECT_THAT(std::string(encode(0, 0, 2, true).message()), HasSubstr("num_tokens"));
  EXPECT_THAT(std::string(encode(0, 5000, 2, true).message()), HasSubstr("num_tokens"));
  EXPECT_THAT(std::string(encode(0, 41, 2, true).message()), HasSubstr("planes[0]"));
  EXPECT_THAT(std::string(encode(0, 40, 1, true).message()), HasSubstr("planes"));
  EXPECT_THAT(std::string(encode(~0u, 40, 2, true).message()), HasSubstr("start_token"));
  EXPECT_THAT(std::string(encode(0, 40, 2, false).message()), HasSubstr("no level"));
}

}  // namespace
}  // namespace sluice::codec
