#include "codec/calibrate/plane_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr int kSmoothedNeighbours = 2;  // model layers on each side
// Of a plane's own measurement in the average of logarithms. Neighbours do differ by factors, but a
// plane that noise hardly harms must not be left out altogether: what is left out repeats from
// token to token, which noise does not.
constexpr double kOwnShare = 0.5;
// Below this a measurement says only that the plane does not matter.
constexpr double kMinSensitivity = 1e-9;

// Place of each plane among those of its model layer.
std::vector<int> PlacesInLayer(const Geometry& geometry) {
  std::vector<int> places(geometry.planes.size());
  for (size_t i = 1; i < places.size(); ++i) {
    const bool same = geometry.planes[i].model_layer == geometry.planes[i - 1].model_layer;
    places[i] = same ? places[i - 1] + 1 : 0;
  }
  return places;
}

}  // namespace

std::vector<double> SmoothSensitivities(const Geometry& geometry,
                                        std::span<const double> sensitivities) {
  const std::vector<int> places = PlacesInLayer(geometry);
  std::vector<double> smooth(sensitivities.size());
  for (size_t i = 0; i < smooth.size(); ++i) {
    const auto layer = static_cast<int64_t>(geometry.planes[i].model_layer);
    double sum = 0;
    int count = 0;
    for (size_t j = 0; j < smooth.size(); ++j) {
      const int64_t distance = std::abs(geometry.planes[j].model_layer - layer);
      if (places[j] != places[i] || distance > kSmoothedNeighbours) continue;
      sum += std::log(std::max(sensitivities[j], kMinSensitivity));
      ++count;
    }
    const double own = std::log(std::max(sensitivities[i], kMinSensitivity));
    smooth[i] = std::exp(kOwnShare * own + (1 - kOwnShare) * sum / count);
  }
  return smooth;
}

absl::StatusOr<RelativeSteps> ChooseRelativeSteps(const Contexts& contexts,
                                                  std::span<const PlaneStatistics> statistics,
                                                  std::span<const double> sensitivities) {
  ASSIGN_OR_RETURN(const Profile builtin, Profile::Builtin(contexts.geometry));
  RelativeSteps result;
  for (size_t i = 0; i < statistics.size(); ++i) {
    double& step = result.steps.emplace_back(0);
    if (!builtin.is_coded(i)) continue;
    if (statistics[i].constant) {
      result.warnings.push_back(
          absl::StrCat(contexts.plane_names[i], " is constant: it is kept exact"));
      continue;
    }
    step = 1 / std::sqrt(std::max(sensitivities[i], kMinSensitivity));
  }
  if (std::ranges::all_of(result.steps, [](double step) { return step == 0; })) {
    return absl::InvalidArgumentError(
        "no plane can be quantised: a profile would change nothing, the built-in one will do");
  }
  return result;
}

}  // namespace sluice::codec
