// A `.sluice` file: a whole context, that is its namespace, token ids and encoded chunks, and its
// profile if that is small.
// Byte layout: FORMAT.md, section "Context file".
//
// Pure functions. Used by the CLI; servers store chunks, not context files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/chunk_key.h"

namespace sluice::codec {

inline constexpr uint16_t kContextFileVersion = 1;

struct ContextFile {
  static constexpr uint32_t kMaxTokens = 1 << 26;
  static constexpr uint32_t kMaxChunks = 1 << 20;
  static constexpr uint32_t kMaxMetadataEntries = 1024;
  static constexpr uint32_t kMaxMetadataKeyBytes = 256;
  static constexpr uint32_t kMaxMetadataValueBytes = 1 << 20;

  NamespaceDescriptor descriptor;
  std::string profile_bytes;        // empty: not in the file; found by the descriptor's profile_id
  std::vector<uint32_t> token_ids;  // empty, or the tokens of all chunks and perhaps more
  std::map<std::string, std::string> metadata;  // the input file's own
  std::vector<std::string> containers;  // one per chunk, in context order; the last may be short

  // Names the first field that a context file cannot hold.
  absl::Status Validate() const;
  bool operator==(const ContextFile&) const = default;
};

// REQUIRES: file.Validate() is OK.
std::string SerializeContextFile(const ContextFile& file);
// `bytes` are hostile. Checks the file's own header and tables, the token ids and the profile's
// bytes; what is inside profile and chunks is checked by their own parsers.
absl::StatusOr<ContextFile> ParseContextFile(std::span<const std::byte> bytes);

}  // namespace sluice::codec
