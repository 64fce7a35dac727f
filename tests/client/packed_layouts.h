// The layouts that engines have on CPUs and GPUs: packed for an instruction set, or rows of tokens.
#pragma once

#include <cstdint>

#include "tests/client/shm_pool.h"

namespace sluice::client {

enum class Packing { kAmx, kVector, kTokenMajor, kHeadMajor };
inline constexpr Packing kPackings[] = {Packing::kAmx, Packing::kVector, Packing::kTokenMajor,
                                        Packing::kHeadMajor};

// Strides of a plane in blocks of `tokens` tokens; offset from the block of its model layer.
// REQUIRES: for kAmx, `tokens` and head_dim are multiples of 16.
inline PlaneLayout PackedPlane(Packing packing, const codec::PlaneSpec& plane, uint64_t tokens) {
  const uint64_t e = codec::ElementBytes(plane.element_type);
  const uint64_t row = plane.head_dim * e;
  const bool key = plane.kind == codec::PlaneKind::kKey;
  PlaneLayout at;
  at.block_stride_bytes = plane.num_heads * 2 * tokens * row;
  at.head_stride_bytes = packing == Packing::kTokenMajor ? 2 * row : 2 * tokens * row;
  if (packing == Packing::kTokenMajor || packing == Packing::kHeadMajor) {
    at.token_stride_bytes = packing == Packing::kTokenMajor ? plane.num_heads * 2 * row : 2 * row;
    at.offset_bytes = key ? 0 : row;
    return at;
  }
  at.offset_bytes = key ? 0 : tokens * row;
  at.token_stride_bytes = key ? e : row;
  if (packing == Packing::kVector) {
    at.dim_stride_bytes = key ? tokens * e : 0;
    return at;
  }
  at.token_tile = key ? 16 : 2;
  at.token_tile_stride_bytes = key ? 16 * row : 32 * e;
  at.token_stride_bytes = key ? 2 * e : e;
  at.dim_tile = key ? 2 : 16;
  at.dim_tile_stride_bytes = key ? 32 * e : 16 * tokens * e;
  at.dim_stride_bytes = key ? e : 2 * e;
  return at;
}

// A pool with a tensor per model layer, and `gap` bytes of nobody before each. REQUIRES: planes
// are keys and values in turn, of one shape per model layer.
inline BlockLayout PackedLayout(Packing packing, const codec::Geometry& geometry,
                                uint32_t num_blocks, uint32_t block_tokens, uint64_t gap) {
  BlockLayout layout;
  layout.geometry = geometry;
  layout.num_blocks = num_blocks;
  layout.block_tokens = block_tokens;
  for (size_t i = 0; i < geometry.planes.size(); ++i) {
    if (i % 2 == 0) layout.pool_bytes += gap;
    PlaneLayout& at =
        layout.planes.emplace_back(PackedPlane(packing, geometry.planes[i], block_tokens));
    at.offset_bytes += layout.pool_bytes;
    if (i % 2 == 1) layout.pool_bytes += num_blocks * at.block_stride_bytes;
  }
  return layout;
}

}  // namespace sluice::client
