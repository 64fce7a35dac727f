// The lossy segments of a group: the base segment (steps and means unless the profile has them,
// classes, coarse values, exact parts) and refinement segments (classes, ternary symbols). Byte
// layout: FORMAT.md, section "Lossy segments".
//
// Pure functions, thread-safe. Segments are hostile bytes: nothing is allocated from a length in
// them, and errors name the field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/bytes.h"
#include "codec/class_tables.h"
#include "codec/profile.h"

namespace sluice::codec {

// Which part of which chunk segments belong to.
struct SegmentContext {
  const Profile* profile = nullptr;  // must outlive it
  size_t group = 0;
  uint32_t start_token = 0;
  uint32_t num_tokens = 0;

  const GroupSpec& spec() const { return profile->groups()[group]; }
  const PlaneSpec& plane(size_t i) const {
    return profile->geometry().planes[spec().first_plane + i];
  }
  bool is_calibrated() const { return profile->calibration() != nullptr; }
  // Tokens at the chunk's begin that are kept exact.
  uint32_t num_sinks() const;
};

// Steps that segments may carry; planes with others are exact.
bool IsCodableStep(double step);

// How a chunk codes one plane of a group.
struct PlaneCode {
  bool exact = false;    // bit-exact at every level, and then none of the rest
  float step = 0;        // finest; of built-in profiles only
  size_t first_row = 0;  // of its channels, head by head, among those of all coded planes
  std::string sinks;     // the exact tokens, [num_heads][num_sinks][head_dim] elements
};

inline PlaneCode ExactPlane() {
  PlaneCode plane;
  plane.exact = true;
  return plane;
}

// What the segments of a group say up to some layer. A row is a channel of the planes that are not
// exact, or with a calibrated profile a coefficient of all of them.
struct GroupCode {
  std::vector<PlaneCode> planes;
  std::vector<int32_t> means;    // [rows], in parts of finest steps; of built-in profiles only
  std::vector<uint8_t> classes;  // [rows], of the last layer
  std::vector<int16_t> values;   // [rows][num_tokens], at the level of the last layer
  int layer = 0;
};

// The bytes of the base segment. `planes` are the group's, whole; the exact ones are read from
// them.
std::string WriteBaseSegment(const SegmentContext& context, const GroupCode& code,
                             std::span<const std::span<const std::byte>> planes);
// Writes exact planes into `planes`, and the rest into `code`.
// REQUIRES: planes[i].size() is num_tokens * bytes_per_token() of the group's plane i.
absl::Status ReadBaseSegment(const SegmentContext& context, std::span<const std::byte> segment,
                             std::span<const std::span<std::byte>> planes, GroupCode& code);

// The bytes of the refinement segment that led to `code`; `predictions` are of
// PredictRefinementClasses.
std::string WriteRefinementSegment(const SegmentContext& context,
                                   std::span<const uint8_t> predictions, const GroupCode& code);
// Raises `code` by one layer.
absl::Status ReadRefinementSegment(const SegmentContext& context,
                                   std::span<const std::byte> segment, GroupCode& code);

// The sink tokens of a plane, [num_heads][num_sinks][head_dim].
std::string CopySinks(const SegmentContext& context, size_t plane_index,
                      std::span<const std::byte> plane);

}  // namespace sluice::codec
