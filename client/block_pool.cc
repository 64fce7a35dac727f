#include "client/block_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/bus_guard.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

constexpr size_t kMaxNameBytes = 255;
constexpr uint64_t kBytesPerStatBlock = 512;
// A page's first touch costs a microsecond or two, as much as decoding into it. Memory that the
// engine has already is touched when it is mapped, up to this; that takes half a second.
constexpr uint64_t kMaxTouchedBytes = uint64_t{1} << 30;

absl::Status CheckName(const std::string& name) {
  if (name.size() < 2 || name.size() > kMaxNameBytes || name[0] != '/' ||
      name.find('/', 1) != std::string::npos || name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("shm_name must be a slash and up to ",
                                                   kMaxNameBytes - 1, " other characters"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockPool>> BlockPool::Map(const std::string& shm_name,
                                                          BlockLayout layout) {
  RETURN_IF_ERROR(CheckName(shm_name));
  RETURN_IF_ERROR(layout.Validate());
  const int fd = shm_open(shm_name.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("shm_open ", shm_name));
  struct stat stat = {};
  if (fstat(fd, &stat) != 0 || static_cast<uint64_t>(stat.st_size) < layout.pool_bytes) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat("pool_bytes is ", layout.pool_bytes, ", but ",
                                                   shm_name, " has ", stat.st_size, " bytes"));
  }
  void* base =
      mmap(nullptr, layout.pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, /*offset=*/0);
  if (base == MAP_FAILED) {
    const int error = errno;
    close(fd);
    return absl::ErrnoToStatus(error, absl::StrCat("mmap ", shm_name));
  }
  if (static_cast<uint64_t>(stat.st_blocks) * kBytesPerStatBlock >= layout.pool_bytes) {
    madvise(base, std::min(layout.pool_bytes, kMaxTouchedBytes), MADV_POPULATE_WRITE);
  }
  return std::unique_ptr<BlockPool>(
      new BlockPool(std::move(layout), fd, static_cast<std::byte*>(base)));
}

BlockPool::~BlockPool() {
  munmap(base_, layout_.pool_bytes);
  close(fd_);
}

absl::Status BlockPool::CheckSize() {
  struct stat stat = {};
  if (fstat(fd_, &stat) != 0 || static_cast<uint64_t>(stat.st_size) < layout_.pool_bytes) {
    lost_.store(true);
  }
  if (lost_.load()) {
    return absl::FailedPreconditionError("the engine has shortened the pool; register it again");
  }
  return absl::OkStatus();
}

absl::Status BlockPool::CheckBytes(size_t plane, size_t num_blocks, size_t values_bytes) const {
  const size_t bytes_per_token = layout_.geometry.planes[plane].bytes_per_token();
  if (values_bytes == num_blocks * layout_.block_tokens * bytes_per_token) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("plane ", plane, " of ", num_blocks,
                                                 " blocks does not have ", values_bytes, " bytes"));
}

absl::Status BlockPool::Scatter(size_t plane, std::span<const uint32_t> blocks,
                                std::span<const std::byte> values) {
  RETURN_IF_ERROR(CheckBytes(plane, blocks.size(), values.size()));
  return Access(plane, 1, blocks, [&](std::span<const codec::PlaneRuns> planes) {
    const codec::TokenInterval all = {0, blocks.size() * layout_.block_tokens};
    codec::CopyToRuns(layout_.geometry.planes[plane], values, all, planes[0]);
    return absl::OkStatus();
  });
}

absl::Status BlockPool::Gather(size_t plane, std::span<const uint32_t> blocks,
                               std::span<std::byte> values) {
  RETURN_IF_ERROR(CheckBytes(plane, blocks.size(), values.size()));
  return Access(plane, 1, blocks, [&](std::span<const codec::PlaneRuns> planes) {
    const codec::TokenInterval all = {0, blocks.size() * layout_.block_tokens};
    codec::CopyFromRuns(layout_.geometry.planes[plane], planes[0], all, values);
    return absl::OkStatus();
  });
}

absl::Status BlockPool::Access(size_t first_plane, size_t num_planes,
                               std::span<const uint32_t> blocks, AccessPlanes access) {
  std::vector<std::byte*> runs;  // [plane][block]
  runs.reserve(num_planes * blocks.size());
  std::vector<codec::PlaneRuns> planes;
  for (size_t i = 0; i < num_planes; ++i) {
    const PlaneLayout& at = layout_.planes[first_plane + i];
    for (const uint32_t block : blocks) {
      runs.push_back(base_ + at.offset_bytes + block * at.block_stride_bytes);
    }
    planes.push_back({.runs = std::span(runs).last(blocks.size()),
                      .run_tokens = layout_.block_tokens,
                      .head_stride = at.head_stride_bytes,
                      .token_stride = at.token_stride_bytes,
                      .tiles = {.token_tile = at.token_tile,
                                .token_tile_stride = at.token_tile_stride_bytes,
                                .dim_tile = at.dim_tile,
                                .dim_tile_stride = at.dim_tile_stride_bytes,
                                .dim_stride = at.dim_stride_bytes}});
  }
  RETURN_IF_ERROR(CheckSize());
  {
    const BusGuard guard(base_, layout_.pool_bytes, &lost_);
    RETURN_IF_ERROR(access(planes));
  }
  return CheckSize();
}

}  // namespace sluice::client
