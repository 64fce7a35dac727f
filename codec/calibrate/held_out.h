// How well a finished profile does on tokens that it was not learnt from: they are encoded and
// decoded as any others.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/calibrate/contexts.h"
#include "codec/calibrate/plane_statistics.h"
#include "codec/calibrate/query_weight.h"
#include "codec/calibration.h"
#include "codec/profile.h"

namespace sluice::codec {

struct HeldOutJudge {
  const Contexts& contexts;
  std::span<const TokenSpan> spans;  // chunks
  std::span<const PlaneStatistics> statistics;
  std::span<const double> sensitivities;  // [plane]
  const QueryWeights& weights;
};

// One figure per level. `done` is called with the number of chunks that were judged.
absl::StatusOr<std::vector<LevelQuality>> MeasureQuality(const Profile& profile,
                                                         const HeldOutJudge& judge,
                                                         const std::function<void(size_t)>& done);

}  // namespace sluice::codec
