#include "codec/calibration.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

absl::Status ValidateLevels(const std::vector<LevelQuality>& levels) {
  for (size_t l = 0; l < levels.size(); ++l) {
    const LevelQuality& level = levels[l];
    for (float value :
         {level.bits_per_element, level.mean_error, level.max_error, level.predicted_kl}) {
      if (!std::isfinite(value) || value < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("levels[", l, "] has a figure that is negative or not finite"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateTables(const std::vector<ClassTables>& tables) {
  for (size_t layer = 0; layer < tables.size(); ++layer) {
    const size_t classes = tables[layer].num_classes(layer == 0);
    if (classes < 1 || classes > kMaxClasses) {
      return absl::InvalidArgumentError(
          absl::StrCat("tables[", layer, "] has ", classes, " classes, not 1..", kMaxClasses));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateGroup(const std::string& name, const Calibration& calibration,
                           const GroupCalibration& group, size_t channels) {
  if (channels > kMaxTransformChannels) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has ", channels, " coded channels, more than ", kMaxTransformChannels));
  }
  if (group.means.size() != channels || group.classes.size() != calibration.tables.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has a wrong number of means or of layers"));
  }
  for (float mean : group.means) {
    if (!(std::abs(mean) <= kMaxCalibratedMean)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has a mean that is out of range"));
    }
  }
  for (size_t layer = 0; layer < group.classes.size(); ++layer) {
    const size_t num_classes = calibration.tables[layer].num_classes(layer == 0);
    if (group.classes[layer].size() != channels) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has a wrong number of classes"));
    }
    for (uint8_t row_class : group.classes[layer]) {
      if (row_class > num_classes) {
        return absl::InvalidArgumentError(absl::StrCat(
            name, " has class ", +row_class, " in layer ", layer, ", which has ", num_classes));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateCalibration(const Calibration& calibration, int num_levels,
                                 const std::vector<size_t>& channels) {
  if (calibration.levels.size() != static_cast<size_t>(num_levels) ||
      calibration.tables.size() != static_cast<size_t>(num_levels) || num_levels == 0) {
    return absl::InvalidArgumentError("a calibration must have figures and tables of each level");
  }
  if (calibration.groups.size() != channels.size()) {
    return absl::InvalidArgumentError("a calibration must have all groups of the profile");
  }
  RETURN_IF_ERROR(ValidateLevels(calibration.levels));
  RETURN_IF_ERROR(ValidateTables(calibration.tables));
  for (size_t g = 0; g < channels.size(); ++g) {
    RETURN_IF_ERROR(ValidateGroup(absl::StrCat("groups[", g, "]"), calibration,
                                  calibration.groups[g], channels[g]));
  }
  return absl::OkStatus();
}

}  // namespace sluice::codec
