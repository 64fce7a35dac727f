// Where the elements of a model's planes lie in an engine's block pool, and whether that can be
// true.
//
// Immutable values; Validate is a pure function. A layout comes from another process, so every
// field is hostile until Validate has passed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "codec/geometry.h"

namespace sluice::client {

// Element (block b, token t, head h, dimension d) of a plane is at
//   offset_bytes + b * block_stride_bytes + h * head_stride_bytes
//   + t / token_tile * token_tile_stride_bytes + t % token_tile * token_stride_bytes
//   + d / dim_tile * dim_tile_stride_bytes + d % dim_tile * dim_stride_bytes.
// A tile of 0 is the whole block, or the whole head; a dim_stride_bytes of 0 the element's size.
struct PlaneLayout {
  uint64_t offset_bytes = 0;
  uint64_t block_stride_bytes = 0;
  uint64_t token_stride_bytes = 0;
  uint64_t head_stride_bytes = 0;
  uint32_t token_tile = 0;
  uint64_t token_tile_stride_bytes = 0;
  uint32_t dim_tile = 0;
  uint64_t dim_tile_stride_bytes = 0;
  uint64_t dim_stride_bytes = 0;
};

struct BlockLayout {
  static constexpr uint64_t kMaxPoolBytes = uint64_t{1} << 44;
  static constexpr uint32_t kMaxBlocks = 1 << 24;
  static constexpr uint32_t kMaxBlockTokens = 4096;

  codec::Geometry geometry;
  std::vector<PlaneLayout> planes;  // one per plane of the geometry
  uint64_t pool_bytes = 0;
  uint32_t num_blocks = 0;
  uint32_t block_tokens = 0;

  // Every element is inside the pool and aligned, and no two elements share a byte. Names the field
  // that is wrong. Two planes may interleave if their strides are equal (K and V of one head side
  // by side, all model layers in one block, ...); other interleavings are refused although some of
  // them would be harmless.
  absl::Status Validate() const;
};

}  // namespace sluice::client
