// Encodes one chunk of KV cache into a container with several levels.
//
// Thread-safe: no state besides its arguments. Encoding never sits on a request's critical path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/container.h"
#include "codec/profile.h"

namespace sluice::codec {

// Which chunk is encoded; goes into the header as it is.
struct ChunkIdentity {
  Digest chunk_key = {};
  Digest namespace_digest = {};
  uint32_t start_token = 0;  // position of the first token; keys are un-rotated with it
};

struct EncodeOptions {
  bool lossy = true;      // the profile's lossy levels
  bool lossless = false;  // and a bit-exact one; always on if the profile has no lossy level
};

// How well one level reproduces the chunk. Errors are of the values as the decoder will write them.
struct LevelReport {
  Level level = 0;
  uint64_t bytes = 0;           // header and all segments that the level needs
  double bits_per_element = 0;  // 8 * bytes / elements of the chunk
  double max_error = 0;         // largest absolute error, in the plane's own unit
  double mean_error = 0;        // mean absolute error
  // Over planes, the largest error that the level admits by construction, in the plane's own unit.
  double error_bound = 0;
};

struct EncodedChunk {
  std::string container;
  std::vector<LevelReport> levels;
};

// `planes[i]` holds plane i of the profile's geometry, [num_heads, num_tokens, head_dim] without
// gaps, in its element type. A plane with NaN or Inf is kept bit-exact at every level.
absl::StatusOr<EncodedChunk> EncodeChunk(const Profile& profile, const ChunkIdentity& identity,
                                         std::span<const std::span<const std::byte>> planes,
                                         uint32_t num_tokens, const EncodeOptions& options);

}  // namespace sluice::codec
