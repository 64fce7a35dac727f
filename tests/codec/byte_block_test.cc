#include "codec/byte_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "codec/digest.h"
#include "codec/frequencies.h"
#include "codec/rans.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

std::string Encode(std::string_view text) {
  ByteWriter writer;
  EncodeByteBlock(AsBytes(text), writer);
  return std::move(writer).Take();
}

absl::Status Decode(std::string_view block, std::string& text) {
  ByteReader reader(AsBytes(block));
  const absl::Status status =
      DecodeByteBlock("block", reader, std::as_writable_bytes(std::span(text)));
  return status.ok() ? reader.ExpectEnd("block") : status;
}

ByteBlockMode Mode(std::string_view block) { return static_cast<ByteBlockMode>(block[3]); }

std::string Poisson(uint32_t seed, size_t size, double mean) {
  std::mt19937 random(seed);
  std::poisson_distribution<int> symbol(mean);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(symbol(random));
  return text;
}

void ExpectRoundTrip(const std::string& text) {
  const std::string block = Encode(text);
  EXPECT_LE(block.size(), kByteBlockHeaderBytes + text.size());
  std::string decoded(text.size(), '?');
  const absl::Status status = Decode(block, decoded);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(decoded, text);
}

TEST(ByteBlockTest, PicksTheMode) {
  EXPECT_EQ(Mode(Encode("")), ByteBlockMode::kRaw);
  EXPECT_EQ(Mode(Encode("a")), ByteBlockMode::kRaw);
  EXPECT_EQ(Mode(Encode("aa")), ByteBlockMode::kConstant);
  EXPECT_EQ(Mode(Encode(Poisson(1, 10000, 3))), ByteBlockMode::kRans);
  std::string repeated;
  for (int i = 0; i < 50; ++i) repeated += "abcdefghijklmnopqrstuvwxyz";
  EXPECT_EQ(Mode(Encode(repeated)), ByteBlockMode::kZstd);
}

TEST(ByteBlockTest, RoundTripsEverySmallSize) {
  for (size_t size = 0; size < 300; ++size) ExpectRoundTrip(Poisson(size, size, 1));
}

TEST(ByteBlockTest, RoundTripsRandomContents) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const size_t size = random() % 20000;
    const double mean = std::ldexp(1.0, static_cast<int>(random() % 14) - 6);
    ExpectRoundTrip(Poisson(seed, size, mean));
  }
  ExpectRoundTrip(std::string(kMaxByteBlockBytes, 'x'));
  ExpectRoundTrip(Poisson(1, kMaxByteBlockBytes, 5));
}

TEST(ByteBlockTest, RansIsNearTheEntropy) {
  // Geometric with ratio 1/2: two bits a symbol.
  std::mt19937 random(1);
  std::geometric_distribution<int> symbol(0.5);
  std::string text(1 << 16, '\0');
  for (char& c : text) c = static_cast<char>(symbol(random));
  const std::string block = Encode(text);
  EXPECT_EQ(Mode(block), ByteBlockMode::kRans);
  EXPECT_LT(block.size(), text.size() / 4 * 1.015);
}

TEST(ByteBlockTest, DamageIsAnErrorOrAnotherValueNeverACrash) {
  for (const std::string& text : {Poisson(1, 3000, 3), std::string(500, 'c'), Poisson(2, 9, 200)}) {
    const std::string block = Encode(text);
    std::string out(text.size(), '\0');
    for (size_t size = 0; size < block.size(); ++size) {
      EXPECT_FALSE(Decode(block.substr(0, size), out).ok()) << size;
    }
    for (size_t bit = 0; bit < 8 * block.size(); ++bit) {
      std::string damaged = block;
      damaged[bit / 8] ^= 1 << bit % 8;
      EXPECT_FALSE(Decode(damaged, out).ok() && out == text) << bit;
    }
  }
}

TEST(ByteBlockTest, ErrorsNameTheField) {
  std::string out(8, '\0');
  const auto message = [&](std::string block) { return std::string(Decode(block, out).message()); };
  EXPECT_THAT(message(std::string("\x00\x00\x00\x09", 4)), HasSubstr("block: mode 9"));
  EXPECT_THAT(message(std::string("\x02\x00\x00\x00xx", 6)), HasSubstr("raw payload has 2 bytes"));
  EXPECT_THAT(message(std::string("\x02\x00\x00\x01xx", 6)), HasSubstr("constant payload"));
  EXPECT_THAT(message(std::string("\x02\x00\x00\x02xx", 6)), HasSubstr("rANS symbol map"));
  EXPECT_THAT(message(std::string("\x02\x00\x00\x03xx", 6)), HasSubstr("zstd"));
  EXPECT_THAT(message(std::string("\x20\x00\x00\x02", 4) + std::string(32, '\0')),
              HasSubstr("rANS frequencies sum to 0"));
  EXPECT_THAT(message(std::string("\xff\xff\xff\x00", 4)), HasSubstr("16777215"));
}

// Files of a u32 length and a block; the digest of the rANS one was computed by a decoder that was
// written from FORMAT.md in another language.
TEST(ByteBlockTest, GoldenFiles) {
  const std::pair<std::string, std::string> files[] = {
      {"raw", DigestHex(Sha256(AsBytes("raw")))},
      {"constant", DigestHex(Sha256(AsBytes(std::string(100, 'c'))))},
      {"rans", "a3682b67c75e0cf18ade91dac948c6f4a9e368d83d0d8128292daa8049c53cfa"},
      {"zstd", "cc4ddfd4ca7a6e5bc7d96589d54729c53bf440bd0e12b7dd8e51e7a068974224"},
  };
  for (const auto& [name, digest] : files) {
    SCOPED_TRACE(name);
    std::ifstream in(SLUICE_SOURCE_DIR "/tests/golden/accept/byte_block/" + name + ".bin",
                     std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    ByteReader reader(AsBytes(bytes));
    uint32_t size = 0;
    ASSERT_TRUE(reader.ReadInRange<uint32_t>("size", 1, 1 << 16, size).ok());
    std::vector<std::byte> out(size);
    const absl::Status status = DecodeByteBlock("block", reader, out);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(reader.ExpectEnd("file").ok());
    EXPECT_EQ(DigestHex(Sha256(out)), digest);
  }
}

TEST(RansTest, LanesRoundTripWithAnyTable) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<uint64_t> counts(1 + random() % 40);
    for (uint64_t& count : counts) count = random() >> random() % 32;
    counts[0] += 1;
    const std::vector<uint16_t> freqs = ScaleToFrequencies(counts);
    std::vector<uint32_t> starts(counts.size());
    std::exclusive_scan(freqs.begin(), freqs.end(), starts.begin(), 0u);
    std::discrete_distribution<int> symbol(freqs.begin(), freqs.end());
    std::vector<int> symbols(random() % 3000);
    for (int& s : symbols) s = symbol(random);

    LaneEncoder encoder;
    for (size_t i = symbols.size(); i > 0; --i) {
      encoder.Put((i - 1) % kLanes, starts[symbols[i - 1]], freqs[symbols[i - 1]]);
    }
    ByteWriter writer;
    encoder.Finish(writer);
    EXPECT_EQ(writer.size(), encoder.size());

    LaneDecoder decoder;
    ASSERT_TRUE(decoder.Init(writer.bytes()).ok());
    for (size_t i = 0; i < symbols.size(); ++i) {
      const uint32_t slot = decoder.Slot(i % kLanes);
      const int s = symbols[i];
      ASSERT_TRUE(slot >= starts[s] && slot < starts[s] + freqs[s]) << i;
      decoder.Advance(i % kLanes, starts[s], freqs[s]);
    }
    EXPECT_TRUE(decoder.Finish().ok()) << decoder.Finish();
  }
}

// The example of FORMAT.md.
TEST(RansTest, WorkedExample) {
  std::vector<uint16_t> words;
  uint32_t state = kStateLow;
  RansPut(state, 0, 3072, words);
  EXPECT_EQ(state, 0x15400u);
  RansPut(state, 3072, 1024, words);
  EXPECT_EQ(state, 0x55c00u);
  EXPECT_TRUE(words.empty());
  EXPECT_EQ(RansSlot(state), 0xc00u);
  state = RansAdvance(state, 3072, 1024, 0xc00);
  EXPECT_EQ(state, 0x15400u);
  EXPECT_EQ(RansAdvance(state, 0, 3072, 0x400), kStateLow);
}

TEST(RansTest, StreamsThatCannotBe) {
  LaneDecoder decoder;
  EXPECT_FALSE(decoder.Init({}).ok());
  EXPECT_FALSE(decoder.Init(AsBytes(std::string(kRansStateBytes, '\0'))).ok());
  const std::string odd(kRansStateBytes + 1, 'x');
  EXPECT_FALSE(decoder.Init(AsBytes(odd)).ok());
  const std::string states(kRansStateBytes, 'x');
  ASSERT_TRUE(decoder.Init(AsBytes(states)).ok());
  EXPECT_FALSE(decoder.Finish().ok());
  for (int i = 0; i < 10; ++i) decoder.Advance(0, decoder.Slot(0), 1);
  EXPECT_THAT(std::string(decoder.Finish().message()), HasSubstr("too early"));
}

TEST(FrequenciesTest, SumIsExactAndEverySymbolIsKept) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    std::vector<uint64_t> counts(1 + random() % 300);
    for (uint64_t& count : counts)
      count = random() >> (17 + random() % 47) & (random() % 2 ? ~0 : 0);
    counts[random() % counts.size()] += 1;
    const std::vector<uint16_t> freqs = ScaleToFrequencies(counts);
    EXPECT_EQ(std::accumulate(freqs.begin(), freqs.end(), 0u), kProbScale);
    for (size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(freqs[i] > 0, counts[i] > 0) << i;
  }
  const std::vector<uint64_t> full(kProbScale, 1);
  EXPECT_EQ(ScaleToFrequencies(full), std::vector<uint16_t>(kProbScale, 1));
  EXPECT_EQ(ScaleToFrequencies(std::vector<uint64_t>{0, 5}), (std::vector<uint16_t>{0, 4096}));
}

}  // namespace
}  // namespace sluice::codec
