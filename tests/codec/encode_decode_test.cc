#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codec/bytes.h"
#include "tests/codec/test_chunks.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

RotaryTable Half(uint32_t rotary_dim) {
  return MakeRotaryTable(10000, rotary_dim, RotaryLayout::kHalf);
}

struct Case {
  std::string name;
  Geometry geometry;
  double mean = 1;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  cases.push_back({"3x64", KeysAndValues(2, 3, 64, ElementType::kBf16, Half(64))});
  cases.push_back({"8x128", KeysAndValues(1, 8, 128, ElementType::kBf16, Half(128))});
  cases.push_back({"1x256", KeysAndValues(1, 1, 256, ElementType::kFp16, Half(256))});
  cases.push_back({"large_key_mean", KeysAndValues(1, 2, 64, ElementType::kBf16, Half(64)), 20});
  cases.push_back({"partial", KeysAndValues(1, 2, 80, ElementType::kFp16, Half(32))});
  cases.push_back(
      {"interleaved", KeysAndValues(1, 2, 64, ElementType::kBf16,
                                    MakeRotaryTable(5e5, 64, RotaryLayout::kInterleaved))});
  cases.push_back({"not_rotated", KeysAndValues(1, 4, 32)});
  cases.push_back({"fp32", KeysAndValues(1, 2, 33, ElementType::kFp32, Half(32))});

  Geometry mixed = KeysAndValues(1, 2, 64, ElementType::kBf16, Half(64));
  mixed.rotary_tables.push_back(Half(128));
  mixed.planes.push_back(Plane(PlaneKind::kKey, 1, 1, 128, ElementType::kBf16, 1));
  mixed.planes.push_back(Plane(PlaneKind::kValue, 1, 1, 128));
  cases.push_back({"mixed_heads", mixed});

  Geometry latent;
  latent.rotary_tables.push_back(MakeRotaryTable(10000, 64, RotaryLayout::kInterleaved));
  latent.rotary_tables[0].first_dim = 512;
  latent.planes.push_back(Plane(PlaneKind::kLatent, 0, 1, 576, ElementType::kBf16, 0));
  cases.push_back({"latent_512_64", latent});

  Geometry partly;
  partly.planes.push_back(Plane(PlaneKind::kKey, 0, 2, 64, ElementType::kFp8E4M3));
  partly.planes.push_back(Plane(PlaneKind::kValue, 0, 2, 64));
  partly.planes.push_back(Plane(PlaneKind::kOpaque, 1, 1, 40, ElementType::kBytes));
  cases.push_back({"partly_exact", partly});
  return cases;
}

// Every element is within the reported bound, levels get better, the sinks are exact.
void CheckLossyLevels(const TestChunk& chunk, const EncodedChunk& encoded) {
  const Geometry& geometry = chunk.profile.geometry();
  double last_mean = std::numeric_limits<double>::infinity();
  for (int level = 0; level < chunk.profile.num_levels(); ++level) {
    const LevelReport& report = encoded.levels[level];
    const auto planes = DecodeChunk(chunk.profile, AsBytes(encoded.container), level);
    ASSERT_TRUE(planes.ok()) << planes.status();
    double largest = 0;
    double sum = 0;
    for (size_t i = 0; i < geometry.planes.size(); ++i) {
      const PlaneSpec& spec = geometry.planes[i];
      if (!IsQuantisable(spec.element_type)) {
        EXPECT_EQ((*planes)[i], chunk.planes[i]);
        continue;
      }
      for (size_t k = 0; k < spec.channels() * chunk.num_tokens; ++k) {
        const double error =
            std::abs(ElementAt(spec, (*planes)[i], k) - ElementAt(spec, chunk.planes[i], k));
        const size_t token = k / spec.head_dim % chunk.num_tokens;
        const bool sink = chunk.start_token == 0 && token < chunk.profile.sink_tokens();
        EXPECT_TRUE(!sink || error == 0);
        largest = std::max(largest, error);
        sum += error;
      }
    }
    EXPECT_LE(largest, report.error_bound);
    EXPECT_NEAR(largest, report.max_error, 1e-6 * largest);
    EXPECT_NEAR(sum / static_cast<double>(geometry.elements_per_token() * chunk.num_tokens),
                report.mean_error, 1e-4 * report.mean_error);
    EXPECT_LE(report.mean_error, last_mean);
    last_mean = report.mean_error;
  }
}

TEST(EncodeDecodeTest, LevelsOfEveryGeometry) {
  for (const Case& c : Cases()) {
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
  const Geometry geometry = KeysAndValues(1, 2, 64, ElementType::kBf16, Half(64));
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
      MakeChunk(KeysAndValues(1, 8, 128, ElementType::kBf16, Half(128)), 512, 256, 3, 5);
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
  const Geometry geometry = KeysAndValues(1, 2, 64, ElementType::kFp32, Half(64));
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
