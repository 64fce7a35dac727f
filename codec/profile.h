// A profile: what encoder and decoder must agree on about a model, besides the chunk's own bytes.
//
// Immutable after Builtin() or Parse(), so safe to share between threads. Content-addressed: its id
// is the SHA-256 of its bytes. Byte layout: FORMAT.md, section "Profile".
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
// The step of a level is three times that of the next, so that their bins nest.
inline constexpr int kStepRatio = 3;

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
  static constexpr uint32_t kMaxSinkTokens = 64;
  // Channels of a plane, and of all planes of a group, that lossy levels quantise.
  static constexpr size_t kMaxCodedChannels = 1 << 16;
  static constexpr size_t kMaxGroupChannels = 1 << 17;
  static constexpr double kMinRelativeStep = 0x1p-20;
  static constexpr double kMaxRelativeStep = 0x1p10;

  // The profile that works on any model: one group per model layer, means and steps in each chunk,
  // no transform. Fails if the geometry is not valid or has too many model layers.
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
  // Finest step of a plane as a multiple of its standard deviation about its channel means; 0 if
  // the plane is never quantised. REQUIRES: plane < geometry().planes.size().
  double relative_step(size_t plane) const { return relative_steps_[plane]; }

 private:
  Profile() = default;

  absl::Status Validate() const;
  void Seal();  // makes bytes_ and id_

  std::string bytes_;
  Digest id_ = {};
  Geometry geometry_;
  std::vector<double> relative_steps_;
  std::vector<GroupSpec> groups_;
  int num_levels_ = 0;
  uint32_t sink_tokens_ = kSinkTokens;
};

}  // namespace sluice::codec
