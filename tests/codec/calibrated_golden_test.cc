// Calibrated profiles, and chunks encoded with one, that are accepted or refused for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "codec/bytes.h"
#include "tests/golden/calibrated_cases.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

std::string ReadGolden(const GoldenCase& c) {
  const std::string path =
      absl::StrCat(SLUICE_SOURCE_DIR, "/tests/golden/", c.expected.empty() ? "accept" : "reject",
                   "/", c.kind, "/", c.name, ".bin");
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

TEST(CalibratedGoldenTest, Profiles) {
  for (const GoldenCase& c : CalibratedProfileCases()) {
    SCOPED_TRACE(c.name);
    const std::string bytes = ReadGolden(c);
    EXPECT_EQ(bytes, c.bytes)
        << "the format has changed: needs a new version, or make_golden if that is not released";
    const auto profile = Profile::Parse(bytes);
    EXPECT_EQ(profile.ok(), c.expected.empty()) << profile.status();
    EXPECT_THAT(std::string(profile.status().message()), HasSubstr(c.expected));
  }
}

TEST(CalibratedGoldenTest, Chunks) {
  const Profile profile = ExampleCalibratedProfile();
  for (const GoldenCase& c : CalibratedChunkCases()) {
    SCOPED_TRACE(c.name);
    const absl::Status status = DecodeAllLevels(profile, ReadGolden(c));
    EXPECT_EQ(status.ok(), c.expected.empty()) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.expected));
  }
}

TEST(CalibratedGoldenTest, TheExampleUsesAllThatSegmentsCanHold) {
  const std::string chunk = ExampleCalibratedChunk();
  const ChunkHeader header = *ParseChunkHeader(AsBytes(chunk));
  ASSERT_EQ(header.layers.size(), 4u);
  EXPECT_EQ(header.num_groups(), 2u);
  EXPECT_GT(header.layers[2].mean_error, 0);
  // Escapes: a length that is not 0 behind layer, modes and classes.
  EXPECT_NE(chunk[header.SegmentOffset(0, 0) + 11], 0);
}

}  // namespace
}  // namespace sluice::codec
