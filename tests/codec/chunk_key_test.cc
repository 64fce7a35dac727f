#include "codec/chunk_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "codec/bytes.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

NamespaceDescriptor ForModel(const char* model) {
  NamespaceDescriptor descriptor;
  descriptor.model = model;
  return descriptor;
}

NamespaceDescriptor FromJson(const nlohmann::json& json) {
  NamespaceDescriptor descriptor;
  descriptor.model = json["model"];
  descriptor.revision = json["revision"];
  descriptor.adapter = json["adapter"];
  descriptor.tenant = json["tenant"];
  descriptor.salt = json["salt"];
  descriptor.chunk_tokens = json["chunk_tokens"];
  descriptor.profile_id = DigestFromHex(json["profile_id"].get<std::string>()).value();
  return descriptor;
}

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    hex += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
    hex += "0123456789abcdef"[c & 15];
  }
  return hex;
}

// Made by tests/golden/make_keys.py, which knows nothing of this code.
nlohmann::json Vectors() {
  std::ifstream in(SLUICE_SOURCE_DIR "/tests/golden/keys.json");
  return nlohmann::json::parse(in);
}

TEST(ChunkKeyTest, NamespacesMatchTheTestVectors) {
  const nlohmann::json vectors = Vectors();
  ASSERT_THAT(vectors["namespaces"], SizeIs(6));
  for (const nlohmann::json& json : vectors["namespaces"]) {
    const NamespaceDescriptor descriptor = FromJson(json);
    EXPECT_TRUE(descriptor.Validate().ok());
    const std::string encoded = EncodeNamespace(descriptor);
    EXPECT_EQ(Hex(encoded), json["encoded"].get<std::string>());
    EXPECT_EQ(DigestHex(NamespaceDigest(descriptor)), json["digest"].get<std::string>());
    const auto decoded = DecodeNamespace(AsBytes(encoded));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, descriptor);
  }
}

TEST(ChunkKeyTest, ChainsMatchTheTestVectors) {
  const nlohmann::json vectors = Vectors();
  ASSERT_FALSE(vectors["chains"].empty());
  for (const nlohmann::json& json : vectors["chains"]) {
    const NamespaceDescriptor descriptor =
        FromJson(vectors["namespaces"][json["namespace"].get<size_t>()]);
    const std::vector<uint32_t> token_ids = json["token_ids"];
    std::vector<std::string> keys;
    for (const Digest& key :
         ChunkKeys(NamespaceDigest(descriptor), token_ids, descriptor.chunk_tokens)) {
      keys.push_back(DigestHex(key));
    }
    EXPECT_EQ(keys, json["chunk_keys"].get<std::vector<std::string>>());
  }
}

TEST(ChunkKeyTest, KeysDependOnAllThatCameBefore) {
  const Digest base = NamespaceDigest(ForModel("m"));
  std::vector<uint32_t> tokens(64);
  const std::vector<Digest> keys = ChunkKeys(base, tokens, 16);
  ASSERT_THAT(keys, SizeIs(4));
  EXPECT_THAT(std::set<Digest>(keys.begin(), keys.end()), SizeIs(4));
  tokens[20] = 1;
  const std::vector<Digest> changed = ChunkKeys(base, tokens, 16);
  EXPECT_EQ(changed[0], keys[0]);
  for (int i = 1; i < 4; ++i) EXPECT_NE(changed[i], keys[i]);
  EXPECT_NE(ChunkKeys(NamespaceDigest(ForModel("n")), tokens, 16)[0], keys[0]);
  EXPECT_THAT(ChunkKeys(base, tokens, 65), IsEmpty());
  EXPECT_THAT(ChunkKeys(base, tokens, 0), IsEmpty());
}

TEST(ChunkKeyTest, ValidateNamesTheField) {
  const auto message = [](auto change) {
    NamespaceDescriptor descriptor = ForModel("m");
    change(descriptor);
    return std::string(descriptor.Validate().message());
  };
  const std::string long_text(257, 'x');
  using D = NamespaceDescriptor;
  EXPECT_THAT(message([&](D& d) { d.model = ""; }), HasSubstr("model"));
  EXPECT_THAT(message([&](D& d) { d.model = long_text; }), HasSubstr("model"));
  EXPECT_THAT(message([&](D& d) { d.revision = long_text; }), HasSubstr("revision"));
  EXPECT_THAT(message([&](D& d) { d.adapter = long_text; }), HasSubstr("adapter"));
  EXPECT_THAT(message([&](D& d) { d.tenant = long_text; }), HasSubstr("tenant"));
  EXPECT_THAT(message([&](D& d) { d.salt = long_text; }), HasSubstr("salt"));
  EXPECT_THAT(message([&](D& d) { d.chunk_tokens = 15; }), HasSubstr("chunk_tokens"));
  EXPECT_THAT(message([&](D& d) { d.chunk_tokens = 4097; }), HasSubstr("chunk_tokens"));
}

TEST(ChunkKeyTest, EveryTruncatedNamespaceIsRefused) {
  const std::string bytes = EncodeNamespace(ForModel("model"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeNamespace(AsBytes(bytes).first(size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeNamespace(AsBytes(bytes + "x")).ok());
}

TEST(DigestTest, HexAndBytes) {
  // NIST's vector for "abc".
  const Digest digest = Sha256(AsBytes("abc"));
  const std::string hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(DigestHex(digest), hex);
  EXPECT_EQ(DigestFromHex(hex).value(), digest);
  EXPECT_EQ(DigestFromBytes(DigestBytes(digest), "key").value(), digest);
  EXPECT_FALSE(DigestFromHex(hex.substr(1)).ok());
  EXPECT_FALSE(DigestFromHex("x" + hex.substr(1)).ok());
  EXPECT_THAT(std::string(DigestFromBytes("short", "chunk key").status().message()),
              HasSubstr("chunk key has 5 bytes"));
}

}  // namespace
}  // namespace sluice::codec
