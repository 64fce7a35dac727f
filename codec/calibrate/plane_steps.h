// How finely each plane is quantised, relative to the others.
//
// Pure functions, thread-safe.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/calibrate/plane_statistics.h"
#include "codec/profile.h"

namespace sluice::codec {

// Fails, naming the plane's index, if a measurement is negative, not finite or over 10^30.
absl::Status CheckSensitivities(std::span<const double> measured);

// Of each plane, how much the model's output diverges for each unit of variance that is added to
// the plane's values, in nats: halfway between what was measured and what is guessed, which is 0
// for planes that are kept exact. Of the guess only how planes compare counts.
std::vector<double> SmoothSensitivities(std::span<const double> measured,
                                        std::span<const double> guessed);

struct RelativeSteps {
  std::vector<double> steps;  // [plane], up to a common factor; 0: kept exact
  std::vector<std::string> warnings;
};

// The inverse of the roots of `sensitivities`, smooth ones, so that all planes do the same harm.
// Planes that cannot be quantised or are constant are kept exact. Fails if that leaves none.
absl::StatusOr<RelativeSteps> ChooseRelativeSteps(const Contexts& contexts,
                                                  std::span<const PlaneStatistics> statistics,
                                                  std::span<const double> sensitivities);

}  // namespace sluice::codec
