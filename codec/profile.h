// A profile: what encoder and decoder must agree on about a model, besides the chunk's own bytes.
//
// Immutable after Builtin() or Parse(), so safe to share between threads. Content-addressed: its id is
// the SHA-256 of its bytes. Byte layout: FORMAT.md, section "Profile".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/digest.h"
#include "codec/geometry.h"

namespace sluice::codec {

// Levels are 0 .. num_levels - 1, then kLossless.
using Level = uint8_t;
inline constexpr Level kLossless = 255;
inline constexpr int kMaxLossyLevels = 8;

// "0", "1", ... or "lossless".
std::string LevelName(Level level);

// Planes that are coded together: [first_plane, first_plane + num_planes).
struct GroupSpec {
  uint32_t first_plane = 0;
  uint32_t num_planes = 0;

  bool operator==(const GroupSpec&) const = default;
};

class Profile {
 public:
  static constexpr size_t kMaxGroups = 512;
  static constexpr uint32_t kSinkTokens = 4;  // default number of exact first tokens of a context

  // The profile that works on any model: one group per model layer, means and steps in each chunk, no
  // transform. Fails if the geometry is not valid.
  static absl::StatusOr<Profile> Builtin(Geometry geometry);
  // `bytes` are hostile: every field is checked, the error names the first bad one.
  static absl::StatusOr<Profile> Parse(std::span<const std::byte> bytes);

  const std::string& bytes() const { return bytes_; }
  const Digest& id() const { return id_; }
  const Geometry& geometry() const { return geometry_; }
  const std::vector<GroupSpec>& groups() const { return groups_; }
  // Number of lossy levels that chunks of this profile have; 0 if every plane must be kept exact.
  int num_levels() const { return num_levels_; }
  uint32_t sink_tokens() const { return sink_tokens_; }
  // Finest step of a plane as a multiple of its standard deviation about its channel means.
  double relative_step() const { return relative_step_; }

 private:
  Profile() = default;

  std::string bytes_;
  Digest id_ = {};
  Geometry geometry_;
  std::vector<GroupSpec> groups_;
  int num_levels_ = 0;
  uint32_t sink_tokens_ = kSinkTokens;
  double relative_step_ = 0;
};

}  // namespace sluice::codec
