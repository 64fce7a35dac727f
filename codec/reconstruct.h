// From the integers of a group back to its planes.
//
// Thread-safe, but for the cache, which one thread at a time may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "absl/status/status.h"
#include "codec/lossy_segment.h"
#include "codec/plane_runs.h"
#include "codec/rotary.h"

namespace sluice::codec {

// The rotations of one chunk, made when first asked for.
class RotationCache {
 public:
  RotationCache(const Profile& profile, uint32_t start_token, uint32_t num_tokens)
      : profile_(profile), start_token_(start_token), num_tokens_(num_tokens) {}

  // Null for planes that are not rotated. Valid as long as the cache.
  const Rotation* Rows(const PlaneSpec& plane) { return Get(plane, rows_); }
  const TokenRotation* Tokens(const PlaneSpec& plane) { return Get(plane, tokens_); }

 private:
  template <typename Rotation>
  const Rotation* Get(const PlaneSpec& plane, std::map<int32_t, Rotation>& rotations) {
    if (plane.rotary_table == PlaneSpec::kNotRotated) return nullptr;
    auto it = rotations.find(plane.rotary_table);
    if (it == rotations.end()) {
      const RotaryTable& table = profile_.geometry().rotary_tables[plane.rotary_table];
      it = rotations.emplace(plane.rotary_table, Rotation(table, start_token_, num_tokens_)).first;
    }
    return &it->second;
  }

  const Profile& profile_;
  const uint32_t start_token_;
  const uint32_t num_tokens_;
  std::map<int32_t, Rotation> rows_;
  std::map<int32_t, TokenRotation> tokens_;
};

// Step of the level that a layer completes, in finest steps.
int StepRatioOf(const Profile& profile, int layer);

// Writes plane i of a built-in profile's group, dense, at the level of code.layer, sinks
// included.
void ReconstructRows(const SegmentContext& context, const GroupCode& code, size_t i,
                     RotationCache& rotations, std::span<std::byte> plane);

// Writes the planes of the group that are not exact, at the level of code.layer, sinks included.
// Only a calibrated profile can fail, for want of memory, and then nothing has been written.
absl::Status ReconstructGroup(const SegmentContext& context, const GroupCode& code,
                              RotationCache& rotations, std::span<const PlaneRuns> planes);
// The same of planes without gaps.
absl::Status ReconstructGroup(const SegmentContext& context, const GroupCode& code,
                              RotationCache& rotations,
                              std::span<const std::span<std::byte>> planes);

}  // namespace sluice::codec
