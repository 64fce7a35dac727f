// A KV cache in a safetensors file: which tensors and metadata mean what. The names are in
// client/cli/README.md.
//
// ContextInput is immutable after it was read, so safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/safetensors.h"
#include "codec/geometry.h"

namespace sluice::client {

inline constexpr uint64_t kMaxContextTokens = uint64_t{1} << 24;

// "layers.3.k": the tensor that holds a plane.
std::string PlaneTensorName(const codec::PlaneSpec& spec);
// "BF16": the dtype of a plane's tensor; opaque planes are "U8".
std::string_view PlaneDtype(codec::ElementType type);

// Token ids as text: a JSON list, or whole numbers between blanks or commas.
absl::StatusOr<std::vector<uint32_t>> ParseTokenIds(std::string_view text);
// A JSON list, as Python's json.dumps writes it.
std::string FormatTokenIds(std::span<const uint32_t> token_ids);

// Metadata that says how the keys of these planes were rotated; ReadContext understands it.
std::map<std::string, std::string> RotaryMetadata(const codec::Geometry& geometry);

struct ContextInput {
  SafetensorsFile file;
  codec::Geometry geometry;
  uint32_t num_tokens = 0;
  std::vector<uint32_t> token_ids;  // one per token, or empty if the file has none
  std::string model;                // may be empty, as the next two
  std::string revision;
  std::string adapter;
  // Plane i of the geometry, [num_heads, num_tokens, head_dim]; views of `file`.
  std::vector<std::span<const std::byte>> planes;
  std::vector<std::string>
      notes;  // what a user may want to know, such as keys that are not rotated
};

// Errors name the tensor or the metadata, and say what to do.
absl::StatusOr<ContextInput> ReadContext(const std::string& path);

// Tokens [start_token, start_token + num_tokens) of all planes, without gaps between them.
class ChunkPlanes {
 public:
  ChunkPlanes(const ContextInput& input, uint32_t start_token, uint32_t num_tokens);

  const std::vector<std::span<const std::byte>>& planes() const { return planes_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::span<const std::byte>> planes_;
};

// Does the plane hold NaN or Inf? Opaque bytes never do.
bool HasNonFinite(codec::ElementType type, std::span<const std::byte> plane);

}  // namespace sluice::client
