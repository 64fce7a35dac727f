#include "client/context_input.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/context_planes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::client {
namespace {

using codec::ElementType;
using codec::PlaneKind;
using ::testing::HasSubstr;

// A file of tensors whose bytes count up, and its metadata.
class ContextInputTest : public ::testing::Test {
 protected:
  ~ContextInputTest() override { std::filesystem::remove(path_); }

  void Add(const std::string& name, const std::string& dtype, std::vector<uint64_t> shape) {
    size_t bytes = SafetensorsDtypeBytes(dtype);
    for (uint64_t size : shape) bytes *= size;
    auto& data = storage_.emplace_back(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i % 113);
    tensors_.push_back({name, dtype, std::move(shape), data});
  }
  void AddLayer(int layer, uint64_t heads = 2, uint64_t dim = 8, uint64_t tokens = 5) {
    for (const char* kind : {"k", "v"}) {
      Add(absl::StrCat("layers.", layer, ".", kind), "BF16", {heads, tokens, dim});
    }
  }
  absl::StatusOr<ContextInput> Read() {
    if (absl::Status status = WriteSafetensors(path_, tensors_, metadata_); !status.ok()) {
      return status;
    }
    return ReadContext(path_);
  }
  void ExpectRefused(const std::string& says) {
    const auto input = Read();
    ASSERT_FALSE(input.ok());
    EXPECT_EQ(input.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(input.status().message()), HasSubstr(says));
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/context.", getpid());
  std::vector<std::vector<std::byte>> storage_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> metadata_ = {
      {"rope_theta", "10000.0"}, {"rope_layout", "half"}, {"token_ids", "[1, 2, 3, 4, 5]"}};
};

TEST_F(ContextInputTest, ElevenLayersInOrder) {
  for (int layer = 0; layer < 11; ++layer) AddLayer(layer);  // 10 sorts before 2 as text
  const auto input = Read();
  ASSERT_TRUE(input.ok()) << input.status();
  ASSERT_EQ(input->geometry.planes.size(), 22u);
  for (size_t i = 0; i < 22; ++i) {
    EXPECT_EQ(input->geometry.planes[i].model_layer, i / 2);
    EXPECT_EQ(input->geometry.planes[i].kind, i % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue);
  }
  EXPECT_EQ(input->num_tokens, 5u);
  EXPECT_EQ(input->token_ids, (std::vector<uint32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(input->geometry.rotary_tables.size(), 1u);
  EXPECT_TRUE(input->notes.empty());
}

TEST_F(ContextInputTest, RotaryOfEachLayer) {
  AddLayer(0);
  AddLayer(1, 1, 16);
  AddLayer(2);
  AddLayer(3);
  metadata_["layers.2.rope_theta"] = "0";
  metadata_["layers.3.rope_inv_freq"] = "[1, 0.25]";
  metadata_["layers.3.rope_layout"] = "interleaved";
  const auto input = Read();
  ASSERT_TRUE(input.ok()) << input.status();
  const auto& planes = input->geometry.planes;
  const auto& tables = input->geometry.rotary_tables;
  EXPECT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[planes[2].rotary_table].inverse_frequencies.size(), 8u);
  EXPECT_EQ(planes[4].rotary_table, codec::PlaneSpec::kNotRotated);
  EXPECT_EQ(tables[planes[6].rotary_table].inverse_frequencies, (std::vector<double>{1, 0.25}));
  EXPECT_EQ(tables[planes[6].rotary_table].layout, codec::RotaryLayout::kInterleaved);
  EXPECT_EQ(planes[1].rotary_table, codec::PlaneSpec::kNotRotated);  // values are not rotated
}

TEST_F(ContextInputTest, RotaryMetadataIsUnderstood) {
  AddLayer(0);
  AddLayer(1);
  Add("layers.2.latent", "F16", {1, 5, 24});
  metadata_["layers.1.rope_theta"] = "0";
  metadata_["layers.2.rope_dim"] = "8";
  const auto input = Read();
  ASSERT_TRUE(input.ok()) << input.status();
  const auto& latent = input->geometry.planes[4];
  EXPECT_EQ(input->geometry.rotary_tables[latent.rotary_table].first_dim, 16u);
  metadata_ = RotaryMetadata(input->geometry);
  const auto again = Read();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->geometry, input->geometry);
}

TEST_F(ContextInputTest, NotRotatedIsNoted) {
  AddLayer(0);
  metadata_.erase("rope_theta");
  metadata_.erase("token_ids");
  const auto input = Read();
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_TRUE(input->geometry.rotary_tables.empty());
  EXPECT_EQ(input->notes.size(), 2u);
}

TEST_F(ContextInputTest, OpaqueBytes) {
  Add("layers.0.opaque", "U8", {1, 5, 70'000});
  const auto input = Read();
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(input->geometry.planes[0].element_type, ElementType::kBytes);
}

TEST_F(ContextInputTest, Refusals) {
  ExpectRefused("layers.0.k\" is missing");
  AddLayer(0);
  AddLayer(2);
  ExpectRefused("layers.1.k\" is missing");
  tensors_.pop_back();
  tensors_.pop_back();
  tensors_[1].name = "layers.0.values";
  ExpectRefused("layers.0.v\" is missing");
  tensors_[1].name = "layers.0.v";
  tensors_.push_back(tensors_[0]);
  for (const char* name : {"x", "layers.", "layers.0", "layers.00.k", "layers.-1.k", "layers.0.q",
                           "layers.99999999999999999999.k"}) {
    tensors_[2].name = name;
    ExpectRefused("is unknown");
  }
  tensors_.pop_back();
  AddLayer(1, 2, 8, 6);
  ExpectRefused("has 6 tokens");
  tensors_.resize(2);
  metadata_["token_ids"] = "[1, 2]";
  ExpectRefused("has 2 ids");
  metadata_["token_ids"] = "[1, 2, 3, 4, 4294967296]";
  ExpectRefused("token id 4");
}

TEST_F(ContextInputTest, ChunksAndBack) {
  AddLayer(0);
  Add("layers.1.opaque", "U8", {1, 5, 3});
  const auto input = Read();
  ASSERT_TRUE(input.ok()) << input.status();
  auto planes = ContextPlanes::Create(input->geometry, 5);
  ASSERT_TRUE(planes.ok());
  for (const TokenRange range : {TokenRange{3, 5}, TokenRange{0, 3}}) {
    const uint32_t count = range.end - range.begin;
    const ChunkPlanes chunk(*input, range.begin, count);
    for (size_t i = 0; i < chunk.planes().size(); ++i) {
      ASSERT_TRUE(planes->Write(i, range.begin, count, chunk.planes()[i]).ok());
    }
  }
  for (size_t i = 0; i < input->planes.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(planes->plane(i), input->planes[i])) << i;
  }
  EXPECT_FALSE(planes->Write(9, 0, 1, {}).ok());
  EXPECT_FALSE(planes->Write(0, 4, 2, {}).ok());
  EXPECT_FALSE(planes->Write(0, 0, 1, {}).ok());

  // Tokens 1 and 4 alone, one after the other.
  const TokenRange ranges[] = {{1, 2}, {4, 5}};
  ASSERT_TRUE(planes->Save(path_, ranges, {{"token_ids", "[2, 5]"}}).ok());
  const auto part = ReadContext(path_);
  ASSERT_TRUE(part.ok()) << part.status();
  const ChunkPlanes second(*part, 1, 1), fifth(*input, 4, 1);
  for (size_t i = 0; i < input->planes.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(second.planes()[i], fifth.planes()[i])) << i;
  }
  const TokenRange outside[] = {{0, 6}};
  EXPECT_FALSE(planes->Save(path_, outside, {}).ok());
}

TEST(TokenIdsTest, Parse) {
  const std::vector<uint32_t> ids = {0, 7, 4294967295};
  for (const char* text :
       {"[0, 7, 4294967295]", "0 7 4294967295", " 0\n7,4294967295\n", "[0,7,4294967295]\n"}) {
    EXPECT_EQ(ParseTokenIds(text).value(), ids) << text;
  }
  EXPECT_EQ(ParseTokenIds(FormatTokenIds(ids)).value(), ids);
  EXPECT_TRUE(ParseTokenIds("[]")->empty());
  for (const char* text : {"-1", "1.5", "[1", "x", "1;2", "4294967296"}) {
    EXPECT_FALSE(ParseTokenIds(text).ok()) << text;
  }
}

TEST(NonFiniteTest, EachType) {
  const auto has = [](ElementType type, uint32_t bits) {
    std::byte plane[8] = {};
    std::memcpy(plane + 4, &bits, codec::ElementBytes(type));
    return HasNonFinite(type, std::span(plane, 4 + codec::ElementBytes(type)));
  };
  EXPECT_TRUE(has(ElementType::kBf16, 0x7fc0));
  EXPECT_TRUE(has(ElementType::kBf16, 0xff80));
  EXPECT_FALSE(has(ElementType::kBf16, 0x7f7f));
  EXPECT_TRUE(has(ElementType::kFp16, 0x7c00));
  EXPECT_FALSE(has(ElementType::kFp16, 0x7bff));
  EXPECT_TRUE(has(ElementType::kFp32, 0x7f800001));
  EXPECT_FALSE(has(ElementType::kFp32, 0x7f7fffff));
  EXPECT_TRUE(has(ElementType::kFp8E4M3, 0xff));
  EXPECT_FALSE(has(ElementType::kFp8E4M3, 0x7e));
  EXPECT_TRUE(has(ElementType::kFp8E5M2, 0x7c));
  EXPECT_FALSE(has(ElementType::kBytes, 0xff));
}

}  // namespace
}  // namespace sluice::client
