#include "codec/container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codec/bytes.h"
#include "codec/context_file.h"
#include "tests/golden/golden_cases.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream in(std::string(SLUICE_SOURCE_DIR) + "/" + path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

absl::Status ParseGolden(const GoldenCase& c) {
  if (c.kind == "container") return VerifyContainer(AsBytes(c.bytes)).status();
  return ParseContextFile(AsBytes(c.bytes)).status();
}

// As `hexdump -C` prints it.
std::string HexDump(std::string_view bytes) {
  std::string dump;
  for (size_t line = 0; line < bytes.size(); line += 16) {
    absl::StrAppendFormat(&dump, "%08x ", line);
    std::string text;
    for (size_t i = line; i < line + 16; ++i) {
      if (i % 8 == 0) dump += ' ';
      if (i >= bytes.size()) {
        dump += "   ";
        continue;
      }
      absl::StrAppendFormat(&dump, "%02x ", static_cast<uint8_t>(bytes[i]));
      text += bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '.';
    }
    absl::StrAppend(&dump, " |", text, "|\n");
  }
  return dump;
}

TEST(ContainerTest, GoldenFiles) {
  for (const GoldenCase& c : GoldenCases()) {
    SCOPED_TRACE(absl::StrCat(c.kind, " ", c.name));
    const char* verdict = c.expected.empty() ? "accept" : "reject";
    EXPECT_EQ(ReadFile(absl::StrCat("tests/golden/", verdict, "/", c.kind, "/", c.name, ".bin")),
              c.bytes)
        << "the format has changed: needs a new version, or make_golden if that is not released";
    const absl::Status status = ParseGolden(c);
    EXPECT_EQ(status.ok(), c.expected.empty()) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.expected));
    const bool version = c.name.find("version") != std::string::npos;
    EXPECT_EQ(status.code() == absl::StatusCode::kUnimplemented, version);
  }
}

TEST(ContainerTest, WorkedExampleOfTheFormatDocument) {
  const std::string dump = HexDump(ExampleContainer());
  EXPECT_THAT(ReadFile("codec/FORMAT.md"), HasSubstr("```\n" + dump + "```\n"));
}

TEST(ContainerTest, ReadsBackWhatItWrote) {
  const std::string bytes = ExampleContainer();
  const absl::StatusOr<ChunkHeader> header = ParseChunkHeader(AsBytes(bytes));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->header_bytes, 208u);
  EXPECT_EQ(header->chunk_key[0], 0xc1);
  EXPECT_EQ(header->namespace_digest[31], 0xa2);
  EXPECT_EQ(header->profile_id[5], 0xf3);
  EXPECT_EQ(header->start_token, 256u);
  EXPECT_EQ(header->num_tokens, 16u);
  EXPECT_EQ(header->num_groups(), 2u);
  EXPECT_EQ(header->layers[0].mean_error, 0.125f);
  EXPECT_EQ(header->layers[0].max_error, 0.5f);
  EXPECT_EQ(header->LayerOfLevel(0), 0);
  EXPECT_EQ(header->LayerOfLevel(1), -1);
  EXPECT_EQ(header->LayerOfLevel(kLossless), 1);
  EXPECT_EQ(header->layers[1].bytes(), 14u);
  EXPECT_EQ(header->total_bytes(), bytes.size());
  EXPECT_EQ(header->LayerOffset(1), 220u);
  EXPECT_EQ(header->SegmentOffset(1, 1), 227u);
  EXPECT_EQ(bytes.substr(header->SegmentOffset(1, 1)), "exact 1");
  EXPECT_EQ(SerializeChunkHeader(*header), bytes.substr(0, 208));
}

TEST(ContainerTest, PrefixTellsTheHeaderLength) {
  const std::string bytes = ExampleContainer();
  const auto prefix = AsBytes(bytes).first(kHeaderPrefixBytes);
  ASSERT_TRUE(PeekHeaderBytes(prefix).ok());
  EXPECT_EQ(*PeekHeaderBytes(prefix), 208u);
  for (size_t size = 0; size < kHeaderPrefixBytes; ++size) {
    EXPECT_FALSE(PeekHeaderBytes(prefix.first(size)).ok()) << size;
  }
  EXPECT_TRUE(ParseChunkHeader(AsBytes(bytes).first(208)).ok());
}

TEST(ContainerTest, EveryTruncationIsRefused) {
  const std::string bytes = ExampleContainer();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(VerifyContainer(AsBytes(bytes).first(size)).ok()) << size;
    EXPECT_EQ(ParseChunkHeader(AsBytes(bytes).first(size)).ok(), size >= 208) << size;
  }
}

TEST(ContainerTest, EveryFlippedBitIsRefused) {
  for (const GoldenCase& c : GoldenCases()) {
    if (!c.expected.empty()) continue;
    ASSERT_TRUE(ParseGolden(c).ok());
    // Chunks in a context file are checked by their own headers.
    const size_t size = c.kind == "container"
                            ? c.bytes.size()
                            : std::min(c.bytes.size(), c.bytes.find(ExampleContainer()));
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      GoldenCase damaged = c;
      damaged.bytes[bit / 8] ^= 1 << bit % 8;
      EXPECT_FALSE(ParseGolden(damaged).ok()) << c.kind << " " << c.name << ", bit " << bit;
    }
  }
}

TEST(ContainerTest, RandomHeadersSurvive) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    ChunkHeader header;
    for (uint8_t& byte : header.chunk_key) byte = random();
    header.start_token = random() >> 1;
    header.num_tokens = 1 + random() % 4096;
    header.layers.resize(1 + random() % 9);
    const size_t num_groups = 1 + random() % 512;
    for (size_t i = 0; i < header.layers.size(); ++i) {
      LayerEntry& layer = header.layers[i];
      const bool last = i + 1 == header.layers.size();
      layer.level = i == 8 || (last && random() % 2) ? kLossless : i;
      layer.mean_error = random() % 1000 / 64.0f;
      layer.segments.resize(num_groups);
      for (SegmentEntry& segment : layer.segments) {
        segment.bytes = random() >> 2;
        segment.checksum = random();
      }
    }
    const std::string bytes = SerializeChunkHeader(header);
    const auto parsed = ParseChunkHeader(AsBytes(bytes));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(SerializeChunkHeader(*parsed), bytes);
    EXPECT_EQ(parsed->total_bytes(), parsed->LayerOffset(parsed->layers.size()));
  }
}

TEST(ContainerTest, SegmentsOutsideTheTableAreNoSegments) {
  const std::string bytes = ExampleContainer();
  const auto header = ParseChunkHeader(AsBytes(bytes));
  ASSERT_TRUE(header.ok());
  EXPECT_TRUE(VerifySegment(*header, 0, 1, AsBytes("base 1")).ok());
  EXPECT_FALSE(VerifySegment(*header, 0, 1, AsBytes("base 0")).ok());
  EXPECT_FALSE(VerifySegment(*header, 0, 1, AsBytes("base 10")).ok());
  EXPECT_EQ(VerifySegment(*header, 2, 0, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(VerifySegment(*header, 0, 2, {}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::codec
