// Chunks of calibrated profiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "codec/bytes.h"
#include "codec/container.h"
#include "codec/decoder.h"
#include "codec/elements.h"
#include "codec/rans.h"
#include "tests/codec/level_checks.h"
#include "tests/codec/test_profiles.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

constexpr double kStep = 0.2;

TestChunk MakeCalibratedChunk(const Geometry& geometry, uint32_t start_token, uint32_t num_tokens,
                              double mean = 0, uint32_t model_layers = 2) {
  TestChunk chunk = MakeChunk(geometry, start_token, num_tokens, 1, mean);
  chunk.profile = MakeCalibratedProfile(geometry, model_layers, kStep, 7);
  return chunk;
}

// Bits of a coded element at the finest level, without what a chunk needs for any number of tokens.
double MarginalBits(const TestChunk& chunk, const EncodedChunk& encoded) {
  const ChunkHeader header = *ParseChunkHeader(AsBytes(encoded.container));
  double bytes = 0;
  double elements = 0;
  for (size_t g = 0; g < chunk.profile.groups().size(); ++g) {
    const double channels = static_cast<double>(chunk.profile.coded_channels(g));
    if (channels == 0) continue;
    elements += channels * chunk.num_tokens;
    for (const LayerEntry& layer : header.layers) {
      bytes += layer.segments[g].bytes - channels - static_cast<double>(kRansStateBytes);
    }
    // Planes that are always exact are zero, and cost next to nothing.
  }
  return 8 * bytes / elements;
}

TEST(CalibratedTest, LevelsOfEveryGeometry) {
  for (const GeometryCase& c : GeometryCases()) {
    SCOPED_TRACE(c.name);
    // A large mean is far from the profile's, as of a model that it was not made for.
    const TestChunk chunk = MakeCalibratedChunk(c.geometry, 0, 100, c.mean);
    const EncodedChunk encoded = chunk.Encode({.lossy = true, .lossless = true});
    ASSERT_EQ(encoded.levels.size(), 4u);
    CheckLossyLevels(chunk, encoded);
    EXPECT_GT(encoded.levels[2].mean_error, 0);
    EXPECT_LT(encoded.levels[2].mean_error, kStep);
    EXPECT_EQ(*DecodeChunk(chunk.profile, AsBytes(encoded.container), kLossless), chunk.planes);
  }
}

// Data with the covariance that the profile is made for, in each type that has levels. Keys have
// the mean of the case, in standard deviations.
TEST(CalibratedTest, CovarianceOfEveryGeometryAndType) {
  constexpr double kFinestStep = 0.05;
  constexpr double kDeviation = 0.2;  // of MakeSpectralChunk's channels with that step
  for (const GeometryCase& c : GeometryCases()) {
    for (const ElementType type : {ElementType::kBf16, ElementType::kFp16, ElementType::kFp32}) {
      SCOPED_TRACE(testing::Message() << c.name << " as type " << static_cast<int>(type));
      Geometry geometry = c.geometry;
      for (PlaneSpec& plane : geometry.planes) {
        if (IsQuantisable(plane.element_type)) plane.element_type = type;
      }
      ProfileParts parts = MakeProfileParts(geometry, 1, kFinestStep, 3);
      for (GroupCalibration& group : parts.calibration.groups) {
        for (size_t i = 0; i < group.means.size(); ++i) {
          group.means[i] = static_cast<float>((i % 2 == 0 ? 1 : -1) * c.mean * kDeviation);
        }
      }
      const TestChunk chunk = MakeSpectralChunk(*parts.Make(), 4096, 40, 3);
      const EncodedChunk encoded = chunk.Encode();
      CheckLossyLevels(chunk, encoded);
      // Rounding to bf16 near a mean of 20 deviations is noise that no transform explains.
      const double slack = c.mean > 1 && type == ElementType::kBf16 ? 1 : 0;
      EXPECT_LT(MarginalBits(chunk, encoded), 2.3 + slack);
    }
  }
}

TEST(CalibratedTest, AnyNumberOfTokensAnywhere) {
  const Geometry geometry = KeysAndValues(2, 2, 64, ElementType::kBf16, HalfTable(64));
  for (uint32_t num_tokens : {1, 4, 5, 33, 256, 300}) {
    for (uint32_t start : {0u, 256u, 1'000'000u}) {
      SCOPED_TRACE(testing::Message() << num_tokens << " tokens at " << start);
      const TestChunk chunk = MakeCalibratedChunk(geometry, start, num_tokens);
      CheckLossyLevels(chunk, chunk.Encode());
    }
  }
}

// Blocks as an engine has them: tokens in runs that lie apart, heads within tokens, odd addresses.
std::vector<std::string> DecodeToRuns(const TestChunk& chunk, std::span<const std::byte> container,
                                      Level level, size_t run_tokens) {
  const ChunkHeader header = *ParseChunkHeader(container);
  std::vector<std::string> dense(chunk.planes.size());
  GroupDecoder decoder;
  for (size_t g = 0; g < chunk.profile.groups().size(); ++g) {
    const GroupSpec& spec = chunk.profile.groups()[g];
    const size_t num_runs = (chunk.num_tokens + run_tokens - 1) / run_tokens;
    std::vector<std::vector<std::string>> blocks(spec.num_planes);
    std::vector<std::vector<std::byte*>> begins(spec.num_planes);
    std::vector<PlaneRuns> planes;
    for (size_t i = 0; i < spec.num_planes; ++i) {
      const PlaneSpec& plane = chunk.profile.geometry().planes[spec.first_plane + i];
      const size_t head_stride = plane.head_dim * ElementBytes(plane.element_type) + 1;
      const size_t token_stride = plane.num_heads * head_stride + 3;
      blocks[i].assign(num_runs, std::string(run_tokens * token_stride, '\x5a'));
      for (std::string& block : blocks[i]) {
        begins[i].push_back(reinterpret_cast<std::byte*>(block.data()));
      }
      planes.push_back({begins[i], run_tokens, head_stride, token_stride});
    }
    EXPECT_TRUE(
        decoder.Read(chunk.profile, header, g, level, SegmentsOf(header, container, g, level))
            .ok());
    EXPECT_TRUE(decoder.Write(planes).ok());
    for (size_t i = 0; i < spec.num_planes; ++i) {
      const PlaneSpec& plane = chunk.profile.geometry().planes[spec.first_plane + i];
      const size_t row = plane.head_dim * ElementBytes(plane.element_type);
      std::string& out = dense[spec.first_plane + i];
      for (size_t head = 0; head < plane.num_heads; ++head) {
        for (size_t t = 0; t < chunk.num_tokens; ++t) {
          const size_t at = t % run_tokens * planes[i].token_stride + head * planes[i].head_stride;
          std::string& block = blocks[i][t / run_tokens];
          out += block.substr(at, row);
          block.replace(at, row, row, '\x5a');
        }
      }
      for (const std::string& block : blocks[i]) {
        EXPECT_EQ(block.find_first_not_of('\x5a'), std::string::npos) << "a gap was written";
      }
    }
  }
  return dense;
}

TEST(GroupDecoderTest, RunsGetTheBytesOfDensePlanes) {
  for (const GeometryCase& c : GeometryCases()) {
    for (const bool calibrated : {false, true}) {
      SCOPED_TRACE(testing::Message() << c.name << (calibrated ? " calibrated" : " built-in"));
      const TestChunk chunk = calibrated ? MakeCalibratedChunk(c.geometry, 0, 300, c.mean)
                                         : MakeChunk(c.geometry, 0, 300, 1, c.mean);
      const std::string container = chunk.Encode({.lossy = true, .lossless = true}).container;
      for (Level level : {Level{0}, Level{2}, kLossless}) {
        const auto dense = DecodeChunk(chunk.profile, AsBytes(container), level);
        ASSERT_TRUE(dense.ok()) << dense.status();
        for (size_t run_tokens : {16, 100, 512}) {
          EXPECT_EQ(DecodeToRuns(chunk, AsBytes(container), level, run_tokens), *dense);
        }
      }
    }
  }
}

TEST(CalibratedTest, GroupsThatCannotBeQuantisedAreExact) {
  const Geometry geometry = KeysAndValues(4, 2, 32);
  TestChunk chunk = MakeCalibratedChunk(geometry, 0, 64);
  SetElement(geometry.planes[0], chunk.planes[0], 500, std::numeric_limits<float>::infinity());
  const EncodedChunk encoded = chunk.Encode();
  const auto planes = DecodeChunk(chunk.profile, AsBytes(encoded.container), 0);
  ASSERT_TRUE(planes.ok()) << planes.status();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ((*planes)[i], chunk.planes[i]);
  for (size_t i = 4; i < 8; ++i) EXPECT_NE((*planes)[i], chunk.planes[i]);

  chunk = MakeCalibratedChunk(geometry, 0, 64);
  SetElement(geometry.planes[0], chunk.planes[0], 500, 1e30f);
  EXPECT_EQ((*DecodeChunk(chunk.profile, AsBytes(chunk.Encode().container), 0))[1],
            chunk.planes[1]);
}

TEST(CalibratedTest, ABasisThatIsNotOneGivesExactGroups) {
  const Geometry geometry = KeysAndValues(2, 2, 8);
  ProfileParts parts = MakeProfileParts(geometry, 1, kStep, 3);
  // Heads are far from orthogonal, so that the encoder's inverse is wrong.
  std::vector<uint16_t>& basis = parts.calibration.groups[0].basis;
  for (size_t i = 0; i < basis.size(); i += 37) basis[i] = 0x4080;
  TestChunk chunk = MakeChunk(geometry, 0, 64, 1, 0);
  chunk.profile = *parts.Make();
  const EncodedChunk encoded = chunk.Encode();
  const auto planes = DecodeChunk(chunk.profile, AsBytes(encoded.container), 0);
  ASSERT_TRUE(planes.ok()) << planes.status();
  EXPECT_EQ((*planes)[0], chunk.planes[0]);
  EXPECT_NE((*planes)[2], chunk.planes[2]);
  CheckLossyLevels(chunk, encoded);
}

TEST(CalibratedTest, EveryFlippedBitIsRefused) {
  const TestChunk chunk = MakeCalibratedChunk(KeysAndValues(1, 1, 8), 0, 40);
  const std::string good = chunk.Encode().container;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(DecodeChunk(chunk.profile, AsBytes(bad), 2).ok()) << "bit " << bit;
  }
}

TEST(CalibratedProfileTest, ParsesWhatItMade) {
  const Profile profile = MakeCalibratedProfile(KeysAndValues(3, 2, 8), 2, kStep, 5);
  const auto parsed = Profile::Parse(AsBytes(profile.bytes()));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->id(), profile.id());
  EXPECT_EQ(parsed->groups(), profile.groups());
  EXPECT_EQ(parsed->coded_channels(0), 64u);
  EXPECT_EQ(parsed->coded_channels(1), 32u);
  EXPECT_EQ(parsed->calibration()->groups[1].classes, profile.calibration()->groups[1].classes);
  EXPECT_TRUE(std::equal(parsed->basis(1).begin(), parsed->basis(1).end(), profile.basis(1).begin(),
                         profile.basis(1).end()));
}

TEST(CalibratedProfileTest, RefusesEveryTruncation) {
  const std::string bytes = MakeCalibratedProfile(KeysAndValues(1, 1, 2), 1, kStep, 5).bytes();
  for (size_t size = 0; size + 8 < bytes.size(); size += 7) {
    std::string cut = bytes.substr(0, size);
    const uint64_t checksum = Checksum(AsBytes(cut));
    cut.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
    EXPECT_FALSE(Profile::Parse(cut).ok()) << size;
  }
}

TEST(CalibratedProfileTest, ErrorsNameTheField) {
  const Geometry geometry = KeysAndValues(2, 1, 4);
  const auto error = [&](const std::function<void(ProfileParts&)>& change) {
    ProfileParts parts = MakeProfileParts(geometry, 1, kStep, 5);
    change(parts);
    return std::string(parts.Make().status().message());
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error([](ProfileParts&) {}), "");
  EXPECT_THAT(error([](auto& p) { p.steps[1] = 1e13; }), HasSubstr("planes[1].step"));
  EXPECT_THAT(error([](auto& p) { p.steps.pop_back(); }), HasSubstr("step of each plane"));
  EXPECT_THAT(error([](auto& p) { p.steps[1] = 0; }), HasSubstr("groups[0].basis"));
  EXPECT_THAT(error([](auto& p) { p.groups[0].num_planes = 1; }), HasSubstr("groups[1]"));
  EXPECT_THAT(error([&](auto& p) { p.calibration.levels[2].mean_error = nan; }),
              HasSubstr("levels[2]"));
  EXPECT_THAT(error([&](auto& p) { p.calibration.levels.pop_back(); }), HasSubstr("each level"));
  EXPECT_THAT(error([&](auto& p) { p.calibration.groups[1].means[3] = nan; }),
              HasSubstr("groups[1] has a mean"));
  EXPECT_THAT(error([&](auto& p) { p.calibration.groups[1].classes[2][0] = 33; }),
              HasSubstr("groups[1] has class 33"));
  EXPECT_THAT(error([&](auto& p) { p.calibration.groups[0].basis[5] = 0x7fc0; }),
              HasSubstr("groups[0].basis"));
  EXPECT_THAT(error([&](auto& p) { p.calibration.groups[0].basis[5] = 0x4500; }),
              HasSubstr("groups[0].basis"));
  EXPECT_THAT(error([&](auto& p) { p.calibration.tables[1].refinement.clear(); }),
              HasSubstr("tables[1]"));
  EXPECT_THAT(error([&](auto& p) { ++p.calibration.tables[0].base[3].symbols[2].frequency; }),
              HasSubstr("tables[0]"));
}

}  // namespace
}  // namespace sluice::codec
