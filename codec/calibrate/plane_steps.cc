#include "codec/calibrate/plane_steps.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

// Of the measurement in the average of logarithms with the guess. Single measurements scatter; and
// where noise hardly does harm, what is left out altogether still does, since it repeats from token
// to token.
constexpr double kMeasuredShare = 0.5;
// Below this a measurement says only that the plane does not matter.
constexpr double kMinSensitivity = 1e-9;
constexpr double kMaxSensitivity = 1e30;

}  // namespace

absl::Status CheckSensitivities(std::span<const double> measured) {
  for (size_t i = 0; i < measured.size(); ++i) {
    if (measured[i] >= 0 && measured[i] <= kMaxSensitivity) continue;
    return absl::InvalidArgumentError(absl::StrCat("sensitivity of planes[", i, "] is ",
                                                   measured[i], ", not in 0..", kMaxSensitivity));
  }
  return absl::OkStatus();
}

std::vector<double> SmoothSensitivities(std::span<const double> measured,
                                        std::span<const double> guessed) {
  std::vector<double> smooth(measured.size());
  double sum = 0;  // of logarithms, measured to guessed
  size_t count = 0;
  for (size_t i = 0; i < smooth.size(); ++i) {
    if (guessed[i] == 0) continue;
    smooth[i] = std::log(std::max(measured[i], kMinSensitivity) / guessed[i]);
    sum += smooth[i];
    ++count;
  }
  const double level = count == 0 ? 0 : sum / static_cast<double>(count);
  for (size_t i = 0; i < smooth.size(); ++i) {
    smooth[i] = guessed[i] * std::exp(kMeasuredShare * smooth[i] + (1 - kMeasuredShare) * level);
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
