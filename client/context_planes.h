// All planes of a context in memory or on the disk: decoded chunks are written into it, and it is
// saved as a file that ReadContext reads.
//
// Threads may write different chunks or planes at a time; everything else is for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/geometry.h"

namespace sluice::client {

// Tokens [begin, end).
struct TokenRange {
  uint32_t begin = 0;
  uint32_t end = 0;

  bool operator==(const TokenRange&) const = default;
};

class ContextPlanes {
 public:
  // Reserves bytes_per_token() * num_tokens, all zero; pages take memory once they are written.
  // ResourceExhausted when that is more than the machine has. REQUIRES: geometry.Validate().
  static absl::StatusOr<ContextPlanes> Create(codec::Geometry geometry, uint32_t num_tokens);
  // The same in a mapped file in $TMPDIR, else /tmp, that has no name, so that nothing of it is
  // left when the process ends. ResourceExhausted when the disk has no room for it.
  static absl::StatusOr<ContextPlanes> CreateOnDisk(codec::Geometry geometry, uint32_t num_tokens);

  const codec::Geometry& geometry() const { return geometry_; }
  uint32_t num_tokens() const { return num_tokens_; }
  // Plane i, [num_heads, num_tokens, head_dim].
  std::span<const std::byte> plane(size_t i) const {
    return {planes_[i].get(), geometry_.planes[i].bytes_per_token() * num_tokens_};
  }

  // Where tokens of a plane are: token `start_token` of head 0; heads are num_tokens() tokens
  // apart. OutOfRange if there are no such tokens.
  absl::StatusOr<std::byte*> Find(size_t plane, uint32_t start_token, uint32_t num_tokens);
  // Copies tokens of one plane; `values` is [num_heads, num_tokens, head_dim] without gaps.
  // OutOfRange or InvalidArgument if it does not fit.
  absl::Status Write(size_t plane, uint32_t start_token, uint32_t num_tokens,
                     std::span<const std::byte> values);
  // Saves the tokens of `ranges` (in order, without overlap), one after the other.
  absl::Status Save(const std::string& path, std::span<const TokenRange> ranges,
                    const std::map<std::string, std::string>& metadata) const;

 private:
  struct Free {
    void operator()(std::byte* bytes) const;

    size_t mapped_bytes = 0;  // 0: it was allocated
  };

  ContextPlanes() = default;

  codec::Geometry geometry_;
  uint32_t num_tokens_ = 0;
  std::vector<std::unique_ptr<std::byte[], Free>> planes_;
};

}  // namespace sluice::client
