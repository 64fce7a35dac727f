// Names of stored things: the namespace digest and the chain of chunk keys.
//
// Pure functions. The byte encodings are in FORMAT.md, sections "Namespace" and "Chunk key", with
// test vectors in tests/golden/keys.json, so that clients in other languages can reproduce them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/digest.h"

namespace sluice::codec {

// Everything that makes KV caches interchangeable. The profile covers geometry, element types and
// rotary embedding.
struct NamespaceDescriptor {
  static constexpr size_t kMaxTextBytes = 256;
  static constexpr uint32_t kMinChunkTokens = 16;
  static constexpr uint32_t kMaxChunkTokens = 4096;

  std::string model;     // 1..256 bytes
  std::string revision;  // the rest up to 256 bytes each, may be empty
  std::string adapter;
  std::string tenant;
  std::string salt;
  uint32_t chunk_tokens = 256;
  Digest profile_id = {};

  // Names the first field that is out of range.
  absl::Status Validate() const;
  bool operator==(const NamespaceDescriptor&) const = default;
};

// The bytes whose SHA-256 is the namespace digest.
std::string EncodeNamespace(const NamespaceDescriptor& descriptor);
absl::StatusOr<NamespaceDescriptor> DecodeNamespace(std::span<const std::byte> bytes);
Digest NamespaceDigest(const NamespaceDescriptor& descriptor);

// Keys of the full chunks of a context: token_ids.size() / chunk_tokens of them. Key i depends on
// the namespace and on all tokens up to the end of chunk i.
std::vector<Digest> ChunkKeys(const Digest& namespace_digest, std::span<const uint32_t> token_ids,
                              uint32_t chunk_tokens);

}  // namespace sluice::codec
