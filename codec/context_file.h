// A `.sluice` file: a whole context, that is its namespace, profile, token ids and encoded chunks.
// Byte layout: FORMAT.md, section "Context file".
//
// One thread at a time. Used by the CLI; servers store chunks, not context files.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/chunk_key.h"
#include "codec/container.h"
#include "codec/profile.h"

namespace sluice::codec {

struct ContextFile {
  NamespaceDescriptor descriptor;
  std::string profile_bytes;
  std::vector<uint32_t> token_ids;              // may be fewer than the chunks' tokens only if empty
  std::map<std::string, std::string> metadata;  // the input file's own
  std::vector<std::string> containers;          // one per chunk, in context order; the last may be short
};

std::string SerializeContextFile(const ContextFile& file);
// `bytes` are hostile. Checks the file's own header and tables; chunks are checked by their own headers.
absl::StatusOr<ContextFile> ParseContextFile(std::span<const std::byte> bytes);

}  // namespace sluice::codec
