// A calibrated profile's way between the planes of a group and its coefficients.
//
// Thread-safe, but for the arguments that they change. FORMAT.md, section "Calibrated profiles".
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/error_report.h"
#include "codec/lossy_segment.h"
#include "codec/plane_runs.h"
#include "codec/reconstruct.h"
#include "codec/token_planes.h"

namespace sluice::codec {

// Writes the planes that are coded at the level of code.layer, but not their sinks.
absl::Status SynthesizeGroup(const SegmentContext& context, const GroupCode& code,
                             RotationCache& rotations, std::span<const PlaneRuns> planes);

// Adds to sums[i] by how much what SynthesizeGroup would write of plane i is off from planes[i].
// The sinks are not counted.
absl::Status CompareGroup(const SegmentContext& context, const GroupCode& code,
                          RotationCache& rotations,
                          std::span<const std::span<const std::byte>> planes,
                          std::span<ErrorSums> sums);

// Fills code.planes, code.values at the finest level, and `measures`, with deviations about the
// profile's means. All planes are exact if one is not finite or far too large for its step.
absl::Status AnalyzeGroup(const SegmentContext& context,
                          std::span<const std::span<const std::byte>> planes,
                          RotationCache& rotations, GroupCode& code,
                          std::span<PlaneMeasure> measures);

// The largest error of plane i at the level of code.layer, before the plane's own rounding, if no
// coefficient is off by more than half a step.
absl::StatusOr<double> TransformErrorBound(const SegmentContext& context, const GroupCode& code,
                                           size_t i);

}  // namespace sluice::codec
