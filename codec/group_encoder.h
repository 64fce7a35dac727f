// The lossy half of the encoder for one group: measure, quantise, pick classes, write segments.
//
// Thread-safe, but for the arguments that it changes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "codec/error_report.h"
#include "codec/lossy_segment.h"
#include "codec/reconstruct.h"

namespace sluice::codec {

// Fills segments[l], the group's segment of layer l, and adds its errors at level l to reports[l].
// Only a calibrated profile can fail: for want of memory, or if its basis has no inverse.
// REQUIRES: both have num_levels() elements, at least one, and planes[i].size() is num_tokens *
// bytes_per_token() of the group's plane i.
absl::Status EncodeLossyGroup(const SegmentContext& context,
                              std::span<const std::span<const std::byte>> planes,
                              RotationCache& rotations, std::span<std::string> segments,
                              std::span<ErrorReport> reports);

}  // namespace sluice::codec
