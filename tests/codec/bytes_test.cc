#include "codec/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

TEST(BytesTest, ReadsBackWhatItWrote) {
  ByteWriter writer;
  writer.Write<uint8_t>(1);
  writer.Write<uint32_t>(0);
  writer.Write<int64_t>(-3);
  writer.Write<float>(1.5f);
  writer.WriteText("text");
  writer.WriteBytes(AsBytes("xyz"));
  writer.Patch<uint32_t>(1, 0x01020304);
  EXPECT_EQ(AsText(writer.bytes().subspan(1, 4)), "\x04\x03\x02\x01");

  ByteReader reader(writer.bytes());
  uint8_t a = 0;
  uint32_t b = 0;
  int64_t c = 0;
  float d = 0;
  std::string text;
  std::span<const std::byte> bytes;
  ASSERT_TRUE(reader.Read("a", a).ok());
  ASSERT_TRUE(reader.Read("b", b).ok());
  ASSERT_TRUE(reader.Read("c", c).ok());
  ASSERT_TRUE(reader.Read("d", d).ok());
  ASSERT_TRUE(reader.ReadText("text", 4, text).ok());
  EXPECT_FALSE(reader.ExpectEnd("all").ok());
  ASSERT_TRUE(reader.ReadBytes("bytes", 3, bytes).ok());
  EXPECT_TRUE(reader.ExpectEnd("all").ok());
  EXPECT_EQ(a, 1);
  EXPECT_EQ(b, 0x01020304u);
  EXPECT_EQ(c, -3);
  EXPECT_EQ(d, 1.5f);
  EXPECT_EQ(text, "text");
  EXPECT_EQ(AsText(bytes), "xyz");
}

TEST(BytesTest, FailuresNameTheFieldAndMoveNothing) {
  const std::string data("\x05\x00\x00\x00yz", 6);
  ByteReader reader(AsBytes(data));
  uint64_t wide = 7;
  EXPECT_THAT(std::string(reader.Read("width", wide).message()), HasSubstr("width"));
  EXPECT_EQ(wide, 7u);
  std::span<const std::byte> bytes;
  EXPECT_FALSE(reader.ReadBytes("bytes", 7, bytes).ok());
  EXPECT_FALSE(reader.ReadBytes("bytes", ~size_t{0}, bytes).ok());
  std::string text;
  EXPECT_THAT(std::string(reader.ReadText("name", 4, text).message()),
              HasSubstr("name is 5, not in 0..4"));
  EXPECT_FALSE(reader.ReadText("name", 100, text).ok());
  uint32_t number = 0;
  EXPECT_FALSE(reader.ReadInRange<uint32_t>("number", 6, 9, number).ok());
  EXPECT_FALSE(reader.ReadInRange<uint32_t>("number", 0, 4, number).ok());
  EXPECT_EQ(reader.position(), 0u);
  EXPECT_TRUE(reader.ReadInRange<uint32_t>("number", 5, 5, number).ok());
  EXPECT_EQ(number, 5u);
  EXPECT_EQ(reader.remaining(), 2u);
}

TEST(BytesTest, NothingFitsInNothing) {
  ByteReader reader({});
  uint8_t byte = 0;
  std::span<const std::byte> bytes;
  EXPECT_FALSE(reader.Read("byte", byte).ok());
  EXPECT_TRUE(reader.ReadBytes("none", 0, bytes).ok());
  EXPECT_TRUE(reader.ReadInto("none", {}).ok());
  EXPECT_TRUE(reader.ExpectEnd("nothing").ok());
}

}  // namespace
}  // namespace sluice::codec
