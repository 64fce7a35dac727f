#include "client/engine_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

constexpr uint64_t kPlaneAlignment = 64;  // bytes; strides stay multiples of every element

BlockLayout MakeLayout(const codec::Geometry& geometry, uint32_t num_blocks,
                       uint32_t block_tokens) {
  BlockLayout layout;
  layout.geometry = geometry;
  layout.num_blocks = num_blocks;
  layout.block_tokens = block_tokens;
  uint64_t block_bytes = 0;
  for (const codec::PlaneSpec& spec : geometry.planes) {
    PlaneLayout& plane = layout.planes.emplace_back();
    plane.offset_bytes = block_bytes;
    plane.token_stride_bytes = spec.bytes_per_token();
    plane.head_stride_bytes = spec.head_dim * codec::ElementBytes(spec.element_type);
    block_bytes += spec.bytes_per_token() * block_tokens;
    block_bytes = (block_bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
  }
  for (PlaneLayout& plane : layout.planes) plane.block_stride_bytes = block_bytes;
  layout.pool_bytes = block_bytes * num_blocks;
  return layout;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EnginePool>> EnginePool::Create(const codec::Geometry& geometry,
                                                               uint32_t num_blocks,
                                                               uint32_t block_tokens) {
  static std::atomic<uint32_t> counter = 0;
  BlockLayout layout = MakeLayout(geometry, num_blocks, block_tokens);
  RETURN_IF_ERROR(layout.Validate());
  std::unique_ptr<EnginePool> pool(new EnginePool());
  pool->shm_name_ = absl::StrCat("/sluice-engine-", getpid(), "-", counter++);
  const char* name = pool->shm_name_.c_str();
  const int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0660);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", name));
  absl::Cleanup close_fd = [fd] { close(fd); };
  pool->linked_ = true;
  // All of the memory now: a write to a page that /dev/shm cannot give would end the process.
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(layout.pool_bytes)); error != 0) {
    return absl::ErrnoToStatus(
        error, absl::StrCat("no room for ", layout.pool_bytes, " bytes in /dev/shm"));
  }
  ASSIGN_OR_RETURN(pool->pool_, BlockPool::Map(pool->shm_name_, std::move(layout)));
  return pool;
}

EnginePool::~EnginePool() { Unlink(); }

void EnginePool::Unlink() {
  if (std::exchange(linked_, false)) shm_unlink(shm_name_.c_str());
}

}  // namespace sluice::client
