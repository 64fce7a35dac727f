#include "client/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/file_io.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

// A file's start: the length field and a JSON header.
std::string WithLength(const std::string& json, uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes + json;
}

absl::StatusOr<SafetensorsHeader> Parse(const std::string& json, uint64_t data_bytes) {
  const std::string bytes = WithLength(json, json.size());
  return ParseSafetensorsHeader(std::as_bytes(std::span(bytes)), bytes.size() + data_bytes);
}

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   uint64_t begin, uint64_t end) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":[", begin, ",", end, "]}");
}

void ExpectRefused(const std::string& json, uint64_t data_bytes, const std::string& says) {
  const auto header = Parse(json, data_bytes);
  ASSERT_FALSE(header.ok()) << json;
  EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << header.status();
  EXPECT_THAT(std::string(header.status().message()), HasSubstr(says));
}

TEST(SafetensorsHeaderTest, Good) {
  const auto header = Parse(
      "{\"__metadata__\":{\"model\":\"m\"}," + Tensor("a", "BF16", "[2,3]", 0, 12) + "," +
          Tensor("none", "F32", "[0,7]", 12, 12) + "," + Tensor("b", "U8", "[]", 12, 13) + "}   ",
      13);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata.at("model"), "m");
  EXPECT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors.at("a").shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_TRUE(Parse("{}", 0).ok());
}

TEST(SafetensorsHeaderTest, BadLength) {
  for (uint64_t length :
       {uint64_t{3}, uint64_t{1} << 20, kMaxSafetensorsHeaderBytes + 1, ~uint64_t{0}}) {
    const std::string bytes = WithLength("{}", length);
    const auto header = ParseSafetensorsHeader(std::as_bytes(std::span(bytes)), bytes.size());
    EXPECT_FALSE(header.ok()) << length;
  }
  EXPECT_FALSE(ParseSafetensorsHeader({}, 0).ok());
}

TEST(SafetensorsHeaderTest, BadJson) {
  ExpectRefused("", 0, "not valid JSON");
  ExpectRefused("{\"a\":", 0, "not valid JSON");
  ExpectRefused("[]", 0, "not a JSON object");
  ExpectRefused("{\"a\":1e999}", 0, "");
  ExpectRefused("{\"\xff\":{}}", 0, "not valid JSON");
  ExpectRefused("{\"a\":1}", 0, "tensor \"a\": entry");
  ExpectRefused("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ \"a\"");
  ExpectRefused("{\"__metadata__\":[]}", 0, "__metadata__");
  // Deep nesting costs no stack.
  ExpectRefused(std::string(1 << 20, '['), 0, "");
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  ExpectRefused("{\"a\":" + deep + "}", 0, "nested too deeply");
}

TEST(SafetensorsHeaderTest, NamesOccurOnce) {
  const std::string a = Tensor("a", "U8", "[1]", 0, 1);
  ExpectRefused("{" + a + "," + a + "}", 1, "\"a\" twice");
  ExpectRefused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                1, "\"dtype\" twice");
}

TEST(SafetensorsHeaderTest, BadFields) {
  ExpectRefused("{" + Tensor("a", "F7", "[1]", 0, 1) + "}", 1, "\"F7\" is unknown");
  ExpectRefused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype is missing");
  ExpectRefused("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "shape is missing");
  ExpectRefused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets");
  ExpectRefused("{" + Tensor("a", "U8", "[-1]", 0, 1) + "}", 1, "shape");
  ExpectRefused("{" + Tensor("a", "U8", "[1.5]", 0, 1) + "}", 1, "shape");
  ExpectRefused("{" + Tensor("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) + "}", 1,
                "too many dimensions");
  ExpectRefused("{" + Tensor("a", "F32", "[4294967296,4294967296]", 0, 4) + "}", 4, "too large");
  ExpectRefused("{" + Tensor("a", "BF16", "[3]", 0, 4) + "}", 4, "spans 4 bytes");
  ExpectRefused("{" + Tensor("a", "U8", "[1]", 1, 0) + "}", 1, "runs backwards");
  ExpectRefused("{" + Tensor("a", "U8", "[9]", 0, 9) + "}", 8, "truncated");
}

TEST(SafetensorsHeaderTest, DataIsCoveredOnce) {
  const std::string a = Tensor("a", "U8", "[2]", 0, 2);
  ExpectRefused("{" + a + "," + Tensor("b", "U8", "[2]", 1, 3) + "}", 3, "overlaps");
  ExpectRefused("{" + a + "," + Tensor("b", "U8", "[2]", 3, 5) + "}", 5, "gap");
  ExpectRefused("{" + a + "}", 3, "belong to no tensor");
}

TEST(SafetensorsFileTest, WriteThenOpen) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/st.", getpid());
  const std::string data = "0123456789ab";
  const auto bytes = std::as_bytes(std::span(data));
  const std::vector<TensorView> tensors = {{"z", "BF16", {2, 2}, bytes.first(8)},
                                           {"a", "F32", {1}, bytes.subspan(8)}};
  ASSERT_TRUE(WriteSafetensors(path, tensors, {{"k", "v"}}).ok());
  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const SafetensorsFile moved = *std::move(file);
  EXPECT_EQ(moved.metadata().at("k"), "v");
  const auto a = moved.data(moved.tensors().at("a"));
  EXPECT_EQ(std::memcmp(a.data(), "89ab", 4), 0);
  EXPECT_EQ(moved.data(moved.tensors().at("z")).size(), 8u);
  std::filesystem::remove(path);
}

TEST(SafetensorsFileTest, BadPaths) {
  EXPECT_TRUE(absl::IsNotFound(SafetensorsFile::Open("/nonexistent/file").status()));
  EXPECT_FALSE(SafetensorsFile::Open("/tmp").ok());
  EXPECT_FALSE(WriteSafetensors("/nonexistent/file", {}, {}).ok());
  const std::string data = "x";
  const TensorView wrong[] = {{"a", "F32", {1}, std::as_bytes(std::span(data))}};
  EXPECT_FALSE(WriteSafetensors("/dev/null", wrong, {}).ok());
}

TEST(FileIoTest, DevicesAreNotRead) {
  const auto bytes = ReadFile("/dev/zero", 1 << 20);
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(bytes.status().message(), "/dev/zero is a device, not a file");
}

// Nor waited for until somebody writes into them.
TEST(FileIoTest, PipesAreNotRead) {
  const std::string pipe = absl::StrCat(::testing::TempDir(), "/pipe.", getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(pipe).status(), absl::InvalidArgumentError(pipe + " is a pipe, not a file"));
  EXPECT_EQ(SafetensorsFile::Open(pipe).status(), ReadFile(pipe).status());
  EXPECT_EQ(ReadHead(pipe, 4), "");
  std::filesystem::remove(pipe);
}

TEST(FileIoTest, FailedWriteLeavesNothing) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/io.", getpid());
  std::filesystem::create_directory(folder);
  const std::string text = "content";
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(text))};
  ASSERT_TRUE(WriteFile(folder + "/a", parts).ok());
  EXPECT_EQ(ReadFile(folder + "/a").value(), text);
  EXPECT_EQ(ReadHead(folder + "/a", 3), text.substr(0, 3));
  EXPECT_TRUE(absl::IsOutOfRange(ReadFile(folder + "/a", 3).status()));
  EXPECT_FALSE(WriteFile(folder + "/none/b", parts).ok());
  std::filesystem::create_directory(folder + "/c");
  EXPECT_FALSE(WriteFile(folder + "/c", parts).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::client
