// An engine's block pool: POSIX shared memory, mapped, with copies between it and planes.
//
// Thread-safe as long as no two threads touch the same blocks. KV bytes are copied once in each
// direction, or decoded into the pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/block_layout.h"
#include "codec/plane_runs.h"

namespace sluice::client {

class BlockPool {
 public:
  // Opens and maps layout.pool_bytes of `shm_name`, which is a slash and a name without slashes.
  // InvalidArgument names the field; NotFound, PermissionDenied etc. are shm_open's.
  static absl::StatusOr<std::unique_ptr<BlockPool>> Map(const std::string& shm_name,
                                                        BlockLayout layout);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  const BlockLayout& layout() const { return layout_; }

  // `values` is a plane of blocks.size() * block_tokens tokens, [num_heads, num_tokens, head_dim]
  // without gaps. FailedPrecondition if the engine has shortened the pool (then and ever after).
  // REQUIRES: plane and block ids are in range.
  absl::Status Scatter(size_t plane, std::span<const uint32_t> blocks,
                       std::span<const std::byte> values);
  absl::Status Gather(size_t plane, std::span<const uint32_t> blocks, std::span<std::byte> values);

  // Calls access(planes) once, for it to write or read all tokens of these blocks of consecutive
  // planes where they belong, and returns what it returns or what is wrong with the pool, as
  // Scatter.
  using AccessPlanes = absl::FunctionRef<absl::Status(std::span<const codec::PlaneRuns> planes)>;
  absl::Status Access(size_t first_plane, size_t num_planes, std::span<const uint32_t> blocks,
                      AccessPlanes access);

 private:
  BlockPool(BlockLayout layout, int fd, std::byte* base)
      : layout_(std::move(layout)), fd_(fd), base_(base) {}

  absl::Status CheckSize();
  absl::Status CheckBytes(size_t plane, size_t num_blocks, size_t values_bytes) const;

  const BlockLayout layout_;
  const int fd_;
  std::byte* const base_;
  std::atomic<bool> lost_ = false;
};

}  // namespace sluice::client
