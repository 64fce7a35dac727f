// A profile: what encoder and decoder must agree on about a model, besides the chunk's own bytes.
//
// Two kinds: built-in, for any model, and calibrated, for one (calibration.h). Immutable once made,
// so safe to share between threads; a calibrated one is large, so share rather than copy it.
// Content-addressed: its id is the SHA-256 of its bytes. Byte layout: FORMAT.md, section "Profile".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/bytes.h"
#include "codec/calibration.h"
#include "codec/class_tables.h"
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

class TransformCache;

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
  static constexpr double kMinCalibratedStep = 0x1p-40;

  // The profile that works on any model: one group per model layer, means and steps in each chunk,
  // no transform. Fails if the geometry is not valid or has too many model layers.
  static absl::StatusOr<Profile> Builtin(Geometry geometry);
  // A profile of kind "calibrated". `steps` are the planes' finest steps in their own unit, 0 for
  // planes that are always exact. Fails, naming the field, if anything is out of range.
  static absl::StatusOr<Profile> Calibrated(Geometry geometry, std::vector<double> steps,
                                            std::vector<GroupSpec> groups, uint32_t sink_tokens,
                                            Calibration calibration);
  // `bytes` are hostile: every field is checked, the error names the first bad one.
  static absl::StatusOr<Profile> Parse(std::span<const std::byte> bytes);
  static absl::StatusOr<Profile> Parse(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  const Digest& id() const { return id_; }
  const Geometry& geometry() const { return geometry_; }
  const std::vector<GroupSpec>& groups() const { return groups_; }
  // Number of lossy levels that chunks of this profile have; 0 if every plane must be kept exact.
  int num_levels() const { return num_levels_; }
  uint32_t sink_tokens() const { return sink_tokens_; }
  // Finest step of a plane; 0 if the plane is never quantised. Of a built-in profile as a multiple
  // of the plane's standard deviation about its channel means in a chunk, of a calibrated one in
  // the plane's own unit. REQUIRES: plane < geometry().planes.size().
  double step(size_t plane) const { return steps_[plane]; }
  bool is_coded(size_t plane) const { return steps_[plane] > 0; }
  // Channels of the coded planes of a group.
  size_t coded_channels(size_t group) const;

  // Null for a built-in profile. Its groups' bases are empty: see basis().
  const Calibration* calibration() const { return calibration_ ? &*calibration_ : nullptr; }
  // [row][channel] of a group, bf16 bits. REQUIRES: calibrated.
  std::span<const uint16_t> basis(size_t group) const;
  // The groups' transforms, for encoder and decoder. REQUIRES: calibrated.
  TransformCache& transforms() const { return *transforms_; }
  // Tables of a layer's classes.
  const ClassTables& tables(int layer) const {
    return calibration_ ? calibration_->tables[layer] : BuiltinTables();
  }

 private:
  Profile() = default;

  absl::Status ParseBody(ByteReader& reader);
  absl::Status ValidateCommon(bool calibrated) const;
  absl::Status Validate() const;
  void Seal();  // makes bytes_ and id_

  std::string bytes_;
  Digest id_ = {};
  Geometry geometry_;
  std::vector<double> steps_;
  std::vector<GroupSpec> groups_;
  int num_levels_ = 0;
  uint32_t sink_tokens_ = kSinkTokens;
  std::optional<Calibration> calibration_;
  std::vector<size_t> basis_offsets_;  // in bytes_, even
  std::shared_ptr<TransformCache> transforms_;
};

}  // namespace sluice::codec
