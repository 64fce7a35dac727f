#include "client/context_planes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/context_input.h"
#include "client/safetensors.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

size_t RowBytes(const codec::PlaneSpec& spec) {
  return spec.head_dim * codec::ElementBytes(spec.element_type);
}

std::string TemporaryFolder() {
  const char* folder = std::getenv("TMPDIR");
  return folder == nullptr || *folder == '\0' ? "/tmp" : folder;
}

// A new file that nobody else can open.
absl::StatusOr<int> OpenUnnamed() {
  std::string name = TemporaryFolder() + "/sluice-XXXXXX";
  const int fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", name));
  unlink(name.c_str());
  return fd;
}

}  // namespace

absl::StatusOr<ContextPlanes> ContextPlanes::Create(codec::Geometry geometry, uint32_t num_tokens) {
  const uint64_t memory_bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  const uint64_t bytes_per_token = geometry.bytes_per_token();
  if (bytes_per_token > 0 && num_tokens > memory_bytes / bytes_per_token) {
    return absl::ResourceExhaustedError(absl::StrCat(num_tokens, " tokens of ", bytes_per_token,
                                                     " bytes are more than this machine's memory"));
  }
  ContextPlanes result;
  result.num_tokens_ = num_tokens;
  for (const codec::PlaneSpec& spec : geometry.planes) {
    void* plane = std::calloc(std::max(num_tokens, 1u), spec.bytes_per_token());
    if (plane == nullptr) return absl::ResourceExhaustedError("out of memory");
    result.planes_.emplace_back(static_cast<std::byte*>(plane));
  }
  result.geometry_ = std::move(geometry);
  return result;
}

void ContextPlanes::Free::operator()(std::byte* bytes) const {
  if (mapped_bytes == 0) {
    std::free(bytes);
  } else {
    munmap(bytes, mapped_bytes);
  }
}

absl::StatusOr<ContextPlanes> ContextPlanes::CreateOnDisk(codec::Geometry geometry,
                                                          uint32_t num_tokens) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<uint64_t> sizes;
  uint64_t total = 0;
  for (const codec::PlaneSpec& spec : geometry.planes) {
    const uint64_t bytes = spec.bytes_per_token() * std::max(num_tokens, 1u);
    sizes.push_back((bytes + page - 1) / page * page);
    total += sizes.back();
  }
  ASSIGN_OR_RETURN(const int fd, OpenUnnamed());
  absl::Cleanup close_fd = [fd] { close(fd); };
  // Takes the room now: a write to a mapping of a full disk would end the process.
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(total)); error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", total, " bytes in ",
                                                     TemporaryFolder(), ": ", strerror(error)));
  }
  ContextPlanes result;
  result.num_tokens_ = num_tokens;
  uint64_t offset = 0;
  for (const uint64_t bytes : sizes) {
    void* plane =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (plane == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot map a temporary file");
    result.planes_.emplace_back(static_cast<std::byte*>(plane), Free{bytes});
    offset += bytes;
  }
  result.geometry_ = std::move(geometry);
  return result;
}

absl::StatusOr<std::byte*> ContextPlanes::Find(size_t plane, uint32_t start_token,
                                               uint32_t num_tokens) {
  if (plane >= planes_.size() || start_token > num_tokens_ ||
      num_tokens > num_tokens_ - start_token) {
    return absl::OutOfRangeError(
        absl::StrCat("plane ", plane, " tokens from ", start_token, ": not in the context"));
  }
  return planes_[plane].get() + start_token * RowBytes(geometry_.planes[plane]);
}

absl::Status ContextPlanes::Write(size_t plane, uint32_t start_token, uint32_t num_tokens,
                                  std::span<const std::byte> values) {
  ASSIGN_OR_RETURN(std::byte * out, Find(plane, start_token, num_tokens));
  const codec::PlaneSpec& spec = geometry_.planes[plane];
  if (values.size() != spec.bytes_per_token() * num_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(PlaneTensorName(spec), ": ", values.size(),
                                                   " bytes for ", num_tokens, " tokens"));
  }
  const size_t row_bytes = RowBytes(spec);
  for (size_t head = 0; head < spec.num_heads; ++head) {
    std::memcpy(out + head * num_tokens_ * row_bytes, values.data() + head * num_tokens * row_bytes,
                num_tokens * row_bytes);
  }
  return absl::OkStatus();
}

absl::Status ContextPlanes::Save(const std::string& path, std::span<const TokenRange> ranges,
                                 const std::map<std::string, std::string>& metadata) const {
  uint64_t kept = 0;
  for (const TokenRange& range : ranges) {
    if (range.begin > range.end || range.end > num_tokens_) {
      return absl::OutOfRangeError("token range is not in the context");
    }
    kept += range.end - range.begin;
  }
  const bool whole = ranges.size() == 1 && kept == num_tokens_;
  std::vector<std::vector<std::byte>> compact;  // keeps what the views show
  compact.reserve(planes_.size());
  std::vector<TensorView> tensors;
  for (size_t i = 0; i < planes_.size(); ++i) {
    const codec::PlaneSpec& spec = geometry_.planes[i];
    std::span<const std::byte> data = plane(i);
    if (!whole) {
      const size_t row_bytes = RowBytes(spec);
      auto& out = compact.emplace_back();
      out.reserve(spec.num_heads * kept * row_bytes);
      for (size_t head = 0; head < spec.num_heads; ++head) {
        for (const TokenRange& range : ranges) {
          const auto* from = planes_[i].get() + head * num_tokens_ * row_bytes;
          out.insert(out.end(), from + range.begin * row_bytes, from + range.end * row_bytes);
        }
      }
      data = out;
    }
    tensors.push_back({PlaneTensorName(spec),
                       std::string(PlaneDtype(spec.element_type)),
                       {spec.num_heads, kept, spec.head_dim},
                       data});
  }
  return WriteSafetensors(path, tensors, metadata);
}

}  // namespace sluice::client
