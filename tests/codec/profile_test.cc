#include "codec/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "codec/bytes.h"
#include "codec/container.h"
#include "tests/codec/test_chunks.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

Geometry Small() {
  return KeysAndValues(2, 2, 8, ElementType::kBf16, MakeRotaryTable(10000, 4, RotaryLayout::kHalf));
}

// Offsets in the bytes of the profile of Small().
constexpr size_t kVersionAt = 4;
constexpr size_t kKindAt = 6;
constexpr size_t kTablesAt = 8;
constexpr size_t kLayoutAt = 12;
constexpr size_t kPairsAt = 17;
constexpr size_t kFrequencyAt = 21;
constexpr size_t kPlanesAt = 37;
constexpr size_t kPlaneBytes = 26;
constexpr size_t kStepInPlane = 18;
constexpr size_t kGroupsAt = kPlanesAt + 4 + 4 * kPlaneBytes;
constexpr size_t kLevelsAt = kGroupsAt + 4 + 2 * 8;
constexpr size_t kSinksAt = kLevelsAt + 1;
constexpr size_t kSectionsAt = kSinksAt + 4;

// The error of a profile whose field at `offset` is changed, with the right checksum.
template <typename T>
std::string ErrorWith(size_t offset, T value) {
  std::string bytes = Profile::Builtin(Small())->bytes();
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  const uint64_t checksum = Checksum(AsBytes(bytes).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &checksum, 8);
  return std::string(Profile::Parse(AsBytes(bytes)).status().message());
}

TEST(ProfileTest, BuiltinHasAGroupPerModelLayer) {
  const Profile profile = *Profile::Builtin(Small());
  EXPECT_EQ(profile.groups(), (std::vector<GroupSpec>{{0, 2}, {2, 2}}));
  EXPECT_EQ(profile.num_levels(), 3);
  EXPECT_EQ(profile.sink_tokens(), Profile::kSinkTokens);
  EXPECT_EQ(profile.step(0), profile.step(2));
  EXPECT_LT(profile.step(1), profile.step(3));
}

TEST(ProfileTest, ParseIsTheInverseOfBuiltin) {
  Geometry mixed = Small();
  mixed.planes.push_back(Plane(PlaneKind::kLatent, 2, 1, 24, ElementType::kFp32));
  mixed.planes.push_back(Plane(PlaneKind::kOpaque, 2, 1, 100, ElementType::kBytes));
  for (const Geometry& geometry : {Small(), mixed, KeysAndValues(1, 1, 8, ElementType::kFp8E4M3)}) {
    const Profile profile = *Profile::Builtin(geometry);
    const auto parsed = Profile::Parse(AsBytes(profile.bytes()));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->bytes(), profile.bytes());
    EXPECT_EQ(parsed->id(), profile.id());
    EXPECT_EQ(parsed->geometry(), geometry);
    EXPECT_EQ(parsed->groups(), profile.groups());
    EXPECT_EQ(parsed->num_levels(), profile.num_levels());
    for (size_t i = 0; i < geometry.planes.size(); ++i) {
      EXPECT_EQ(parsed->step(i), profile.step(i));
    }
  }
}

TEST(ProfileTest, LargePlanesAreKeptExactAndLargeGroupsSplit) {
  Geometry geometry = KeysAndValues(1, 16, 4096);
  geometry.planes.push_back(Plane(PlaneKind::kLatent, 0, 1, 64));
  geometry.planes.push_back(Plane(PlaneKind::kLatent, 1, 1, (1 << 16) + 1));
  const Profile profile = *Profile::Builtin(geometry);
  EXPECT_EQ(profile.groups(), (std::vector<GroupSpec>{{0, 2}, {2, 1}, {3, 1}}));
  EXPECT_GT(profile.step(0), 0);
  EXPECT_EQ(profile.step(3), 0);
}

TEST(ProfileTest, BuiltinRefusesBadGeometries) {
  Geometry geometry = Small();
  geometry.planes[2].head_dim = 0;
  EXPECT_THAT(std::string(Profile::Builtin(geometry).status().message()), HasSubstr("planes[2]"));
  Geometry deep;
  for (uint32_t l = 0; l <= Profile::kMaxGroups; ++l) {
    deep.planes.push_back(Plane(PlaneKind::kLatent, l, 1, 8));
  }
  EXPECT_THAT(std::string(Profile::Builtin(deep).status().message()),
              HasSubstr("number of groups"));
}

TEST(ProfileTest, EveryFlippedBitAndEveryLengthIsRefused) {
  const std::string good = Profile::Builtin(Small())->bytes();
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(Profile::Parse(AsBytes(bad)).ok()) << "bit " << bit;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(Profile::Parse(AsBytes(good).first(size)).ok());
  }
  EXPECT_FALSE(Profile::Parse(AsBytes(good + '\0')).ok());
}

TEST(ProfileTest, ErrorsNameTheField) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const size_t step_at = kPlanesAt + 4 + kStepInPlane;
  EXPECT_EQ(ErrorWith<uint16_t>(kVersionAt, 1), "");
  EXPECT_THAT(ErrorWith<uint32_t>(0, 7), HasSubstr("magic"));
  EXPECT_THAT(ErrorWith<uint16_t>(kVersionAt, 2), HasSubstr("version 2"));
  EXPECT_THAT(ErrorWith<uint16_t>(kKindAt, 2), HasSubstr("kind 2"));
  EXPECT_THAT(ErrorWith<uint32_t>(kTablesAt, 257), HasSubstr("number of rotary tables"));
  EXPECT_THAT(ErrorWith<uint8_t>(kLayoutAt, 3), HasSubstr("layout"));
  EXPECT_THAT(ErrorWith<uint32_t>(kLayoutAt + 1, 5), HasSubstr("rotary_table"));
  EXPECT_THAT(ErrorWith<uint32_t>(kPairsAt, 0), HasSubstr("number of pairs"));
  EXPECT_THAT(ErrorWith<uint32_t>(kPairsAt, 4097), HasSubstr("number of pairs"));
  EXPECT_THAT(ErrorWith<uint32_t>(kPairsAt, 4096), HasSubstr("inverse_frequencies"));
  EXPECT_THAT(ErrorWith(kFrequencyAt, nan), HasSubstr("inverse frequency"));
  EXPECT_THAT(ErrorWith(kFrequencyAt, infinity), HasSubstr("inverse frequency"));
  EXPECT_THAT(ErrorWith<uint32_t>(kPlanesAt, 0), HasSubstr("number of planes"));
  EXPECT_THAT(ErrorWith<uint32_t>(kPlanesAt, 1025), HasSubstr("number of planes"));
  EXPECT_THAT(ErrorWith<uint8_t>(kPlanesAt + 4, 9), HasSubstr("planes[0].kind"));
  EXPECT_THAT(ErrorWith<uint8_t>(kPlanesAt + 5, 0), HasSubstr("planes[0].element_type"));
  for (double step : {nan, infinity, -0.5, 1e-9, 2000.0}) {
    EXPECT_THAT(ErrorWith(step_at, step), HasSubstr("planes[0].step"));
  }
  EXPECT_THAT(ErrorWith<uint32_t>(kGroupsAt, 0), HasSubstr("number of groups"));
  EXPECT_THAT(ErrorWith<uint32_t>(kGroupsAt, 513), HasSubstr("number of groups"));
  EXPECT_THAT(ErrorWith<uint32_t>(kGroupsAt + 4, 1), HasSubstr("groups[0]"));
  EXPECT_THAT(ErrorWith<uint32_t>(kGroupsAt + 8, 3), HasSubstr("groups[1]"));
  EXPECT_THAT(ErrorWith<uint32_t>(kGroupsAt + 8, 0), HasSubstr("groups[0]"));
  EXPECT_THAT(ErrorWith<uint32_t>(kGroupsAt + 16, 3), HasSubstr("groups[1]"));
  EXPECT_THAT(ErrorWith<uint32_t>(kGroupsAt + 16, 1), HasSubstr("do not cover"));
  EXPECT_THAT(ErrorWith<uint8_t>(kLevelsAt, 9), HasSubstr("number of levels"));
  EXPECT_THAT(ErrorWith<uint8_t>(kLevelsAt, 0), HasSubstr("number of levels"));
  EXPECT_THAT(ErrorWith<uint32_t>(kSinksAt, 65), HasSubstr("sink_tokens"));
  EXPECT_THAT(ErrorWith<uint32_t>(kSectionsAt, 1), HasSubstr("sections"));
}

TEST(ProfileTest, LevelNames) {
  EXPECT_EQ(LevelName(0), "0");
  EXPECT_EQ(LevelName(7), "7");
  EXPECT_EQ(LevelName(kLossless), "lossless");
}

}  // namespace
}  // namespace sluice::codec
