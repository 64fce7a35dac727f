// Shared memory as an engine makes it, with a layout for tests.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

#include "client/block_layout.h"

namespace sluice::client {

// A shared memory object of its own name; unlinked and unmapped at the end.
class ShmPool {
 public:
  explicit ShmPool(size_t bytes) : bytes_(bytes) {
    static std::atomic<int> count = 0;
    name_ = "/sluice-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
    fd_ = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, /*offset=*/0));
  }
  ~ShmPool() {
    munmap(base_, bytes_);
    close(fd_);
    shm_unlink(name_.c_str());
  }
  ShmPool(const ShmPool&) = delete;
  ShmPool& operator=(const ShmPool&) = delete;

  const std::string& name() const { return name_; }
  std::byte* data() { return base_; }
  size_t size() const { return bytes_; }
  bool Truncate(size_t bytes) { return ftruncate(fd_, static_cast<off_t>(bytes)) == 0; }

 private:
  const size_t bytes_;
  std::string name_;
  int fd_ = -1;
  std::byte* base_ = nullptr;
};

// Where an element lies in its pool: the formula of the protocol, word by word.
inline uint64_t ElementOffset(const BlockLayout& layout, size_t plane, uint64_t b, uint64_t t,
                              uint64_t h, uint64_t d) {
  const codec::PlaneSpec& spec = layout.geometry.planes[plane];
  const PlaneLayout& at = layout.planes[plane];
  const uint64_t token_tile = at.token_tile == 0 ? layout.block_tokens : at.token_tile;
  const uint64_t dim_tile = at.dim_tile == 0 ? spec.head_dim : at.dim_tile;
  const uint64_t dim_stride =
      at.dim_stride_bytes == 0 ? codec::ElementBytes(spec.element_type) : at.dim_stride_bytes;
  return at.offset_bytes + b * at.block_stride_bytes + h * at.head_stride_bytes +
         t / token_tile * at.token_tile_stride_bytes + t % token_tile * at.token_stride_bytes +
         d / dim_tile * at.dim_tile_stride_bytes + d % dim_tile * dim_stride;
}

// `num_layers` model layers of bf16 K and V planes without rotary embedding.
inline codec::Geometry SmallGeometry(uint32_t num_layers, uint32_t num_heads, uint32_t head_dim) {
  codec::Geometry geometry;
  for (uint32_t layer = 0; layer < num_layers; ++layer) {
    for (const codec::PlaneKind kind : {codec::PlaneKind::kKey, codec::PlaneKind::kValue}) {
      codec::PlaneSpec plane;
      plane.kind = kind;
      plane.element_type = codec::ElementType::kBf16;
      plane.model_layer = layer;
      plane.num_heads = num_heads;
      plane.head_dim = head_dim;
      geometry.planes.push_back(plane);
    }
  }
  return geometry;
}

// One tensor [num_blocks, heads, block_tokens, K then V] per model layer, as vLLM has it.
inline BlockLayout HeadMajorLayout(const codec::Geometry& geometry, uint32_t num_blocks,
                                   uint32_t block_tokens) {
  BlockLayout layout;
  layout.geometry = geometry;
  layout.num_blocks = num_blocks;
  layout.block_tokens = block_tokens;
  for (size_t i = 0; i < geometry.planes.size(); ++i) {
    const codec::PlaneSpec& plane = geometry.planes[i];
    const uint64_t row = plane.head_dim * codec::ElementBytes(plane.element_type);
    const uint64_t block = 2 * row * block_tokens * plane.num_heads;
    layout.planes.push_back({.offset_bytes = (i / 2) * block * num_blocks + (i % 2) * row,
                             .block_stride_bytes = block,
                             .token_stride_bytes = 2 * row,
                             .head_stride_bytes = 2 * row * block_tokens});
    layout.pool_bytes = (i / 2 + 1) * block * num_blocks;
  }
  return layout;
}

}  // namespace sluice::client
