// Planes of contexts as rows of floats, one per channel, keys turned back to position 0.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "codec/calibrate/contexts.h"
#include "codec/calibrate/linear_algebra.h"
#include "codec/profile.h"
#include "codec/rotary.h"

namespace sluice::codec {

// Values larger than this are refused, so that sums of their squares stay finite.
inline constexpr float kMaxTrainingValue = kMaxCalibratedMean;

// The channels of those planes of a group that are coded.
struct GroupChannels {
  GroupSpec spec;
  std::vector<size_t> planes = {};          // coded ones
  std::vector<size_t> first_channels = {};  // of each of them
  size_t count = 0;
};

// `steps` as a profile has them: 0 for planes that are not coded.
GroupChannels ChannelsOf(const Geometry& geometry, std::span<const double> steps, GroupSpec spec);

class ChannelReader {
 public:
  // `contexts` must outlive it and be valid.
  explicit ChannelReader(const Contexts& contexts);

  // Writes [channels][span.size()] of a plane. Fails at NaN, Inf and values out of range, with the
  // names of context and plane, and the token. REQUIRES: the plane is quantisable.
  absl::Status ReadPlane(const TokenSpan& span, size_t plane, std::span<float> rows);

 private:
  const Rotation& RotationOf(const TokenSpan& span, size_t table);

  const Contexts& contexts_;
  TokenSpan rotated_;  // what rotations_ are for
  std::vector<std::optional<Rotation>> rotations_;
};

// y = (value - mean) / step of a group's channels, [channels][span.size()]; 0 at tokens that are
// kept exact. `means` are [plane][channel], `steps` [plane].
absl::Status ReadNormalised(ChannelReader& reader, const GroupChannels& group,
                            const TokenSpan& span, uint32_t sink_tokens,
                            std::span<const std::vector<double>> means,
                            std::span<const double> steps, Dense<float>& y);

}  // namespace sluice::codec
