#include "tests/codec/lossy_golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "codec/bytes.h"
#include "codec/elements.h"

namespace sluice::codec {
namespace {

std::string ReadGolden(const std::string& name) {
  std::ifstream in(std::string(SLUICE_SOURCE_DIR) + "/tests/golden/lossy/" + name,
                   std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

// Old files decode to the same bytes for ever, whatever the encoder does today.
TEST(LossyGoldenTest, DecodesToTheSameBytes) {
  std::string digests;
  for (const auto& [name, chunk] : LossyGoldenChunks()) {
    const std::string profile_bytes = ReadGolden(name + ".profile");
    const auto profile = Profile::Parse(AsBytes(profile_bytes));
    ASSERT_TRUE(profile.ok()) << profile.status();
    digests += DecodedDigests(name, *profile, ReadGolden(name + ".chunk"));
  }
  EXPECT_EQ(digests, ReadGolden("digests.txt"));
}

// A profile's id is part of every namespace: another id makes all stored chunks unreachable.
TEST(LossyGoldenTest, BuiltinProfileIsTheSame) {
  for (const auto& [name, chunk] : LossyGoldenChunks()) {
    EXPECT_EQ(chunk.profile.bytes(), ReadGolden(name + ".profile"))
        << "steps or layout have changed: run make_lossy_golden if no release has the old ones";
  }
}

// Two machines' decoders may round differently: to neighbouring numbers of the element type, where
// sums cancel by a few parts of the largest.
void CheckSame(const PlaneSpec& spec, const std::string& decoded, const std::string& golden) {
  ASSERT_EQ(decoded.size(), golden.size());
  if (!IsQuantisable(spec.element_type)) {
    EXPECT_EQ(decoded, golden);
    return;
  }
  const size_t count = golden.size() / ElementBytes(spec.element_type);
  double largest = 0;
  for (size_t k = 0; k < count; ++k) {
    largest = std::max(largest, std::abs(ElementAt(spec, golden, k)));
  }
  for (size_t k = 0; k < count; ++k) {
    const double wanted = ElementAt(spec, golden, k);
    EXPECT_NEAR(ElementAt(spec, decoded, k), wanted,
                2 * RoundingError(spec.element_type, std::abs(wanted)) + 1e-5 * largest)
        << "element " << k;
  }
}

// Integers are the same on every machine, values nearly so.
TEST(LossyGoldenTest, CalibratedChunksDecodeToTheSame) {
  std::string digests;
  for (const char* name :
       {"calibrated_two_groups", "calibrated_joint_fp16", "calibrated_mixed_types"}) {
    SCOPED_TRACE(name);
    const auto profile = Profile::Parse(ReadGolden(std::string(name) + ".profile"));
    ASSERT_TRUE(profile.ok()) << profile.status();
    const std::string container = ReadGolden(std::string(name) + ".chunk");
    digests += ValueDigests(name, *profile, container);
    const auto decoded = DecodedLevels(*profile, container);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    std::string golden = ReadGolden(std::string(name) + ".decoded");
    const std::vector<PlaneSpec>& planes = profile->geometry().planes;
    for (size_t i = 0; i < decoded->size(); ++i) {
      SCOPED_TRACE(testing::Message()
                   << "level " << i / planes.size() << ", plane " << i % planes.size());
      CheckSame(planes[i % planes.size()], (*decoded)[i], golden.substr(0, (*decoded)[i].size()));
      golden.erase(0, (*decoded)[i].size());
    }
    EXPECT_EQ(golden, "");
  }
  EXPECT_EQ(digests, ReadGolden("values.txt"));
}

// The planes that were encoded lie within the bound, half a step times the gain of the basis.
TEST(LossyGoldenTest, CalibratedChunksKeepTheirBound) {
  for (const char* name :
       {"calibrated_two_groups", "calibrated_joint_fp16", "calibrated_mixed_types"}) {
    SCOPED_TRACE(name);
    TestChunk chunk{*Profile::Parse(ReadGolden(std::string(name) + ".profile")), 0, 0, {}};
    const std::string container = ReadGolden(std::string(name) + ".chunk");
    const ChunkHeader header = *ParseChunkHeader(AsBytes(container));
    chunk.start_token = header.start_token;
    chunk.num_tokens = header.num_tokens;
    chunk.planes = *DecodeChunk(chunk.profile, AsBytes(container), kLossless);
    const std::vector<LevelReport> levels = chunk.Encode().levels;
    for (size_t level = 0; level < levels.size(); ++level) {
      const auto planes = *DecodeChunk(chunk.profile, AsBytes(container), levels[level].level);
      for (size_t i = 0; i < planes.size(); ++i) {
        const PlaneSpec& spec = chunk.profile.geometry().planes[i];
        if (!IsQuantisable(spec.element_type)) continue;
        for (size_t k = 0; k < spec.channels() * chunk.num_tokens; ++k) {
          ASSERT_NEAR(ElementAt(spec, planes[i], k), ElementAt(spec, chunk.planes[i], k),
                      levels[level].error_bound)
              << "level " << level << ", plane " << i << ", element " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::codec
