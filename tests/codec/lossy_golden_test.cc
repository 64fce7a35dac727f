#include "tests/codec/lossy_golden.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "codec/bytes.h"

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

}  // namespace
}  // namespace sluice::codec
