// From the integers of a group back to its planes.
//
// Both the decoder and the encoder's error report go through here. Thread-safe, but for the cache,
// which one thread at a time may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "codec/lossy_segment.h"
#include "codec/rotary.h"

namespace sluice::codec {

// The rotations of one chunk, made when first asked for.
class RotationCache {
 public:
  RotationCache(const Profile& profile, uint32_t start_token, uint32_t num_tokens)
      : profile_(profile), start_token_(start_token), num_tokens_(num_tokens) {}

  // Null for planes that are not rotated. Valid as long as the cache.
  const Rotation* Get(const PlaneSpec& plane);

 private:
  const Profile& profile_;
  const uint32_t start_token_;
  const uint32_t num_tokens_;
  std::map<int32_t, Rotation> rotations_;
};

// Step of the level that a layer completes, in finest steps.
int StepRatioOf(const Profile& profile, int layer);

// Writes plane i of the group at the level of code.layer into `plane`, sinks included.
// REQUIRES: the plane is not exact.
void ReconstructPlane(const SegmentContext& context, const GroupCode& code, size_t i,
                      RotationCache& rotations, std::span<std::byte> plane);

}  // namespace sluice::codec
