#include "codec/class_prediction.h"

#include <algorithm>

namespace sluice::codec {
namespace {

// A row that does better or worse than usual in one layer does so in the next.
uint8_t MoveClass(int usual, int parent, int usual_parent, int num_classes) {
  const int moved = usual + parent - usual_parent;
  if (usual == 0 && moved <= 0) return 0;
  return static_cast<uint8_t>(std::clamp(moved, 1, num_classes));
}

}  // namespace

std::span<const uint8_t> PredictBaseClasses(const Profile& profile, size_t group) {
  if (profile.calibration() == nullptr) return {};
  return profile.calibration()->groups[group].classes[0];
}

std::vector<uint8_t> PredictRefinementClasses(const Profile& profile, size_t group, int layer,
                                              std::span<const uint8_t> parents) {
  const ClassTables& tables = profile.tables(layer);
  std::vector<uint8_t> predicted(parents.size());
  if (profile.calibration() == nullptr) {
    std::transform(parents.begin(), parents.end(), predicted.begin(),
                   [&](uint8_t parent) { return tables.PredictRefinementClass(parent); });
    return predicted;
  }
  const GroupCalibration& usual = profile.calibration()->groups[group];
  const auto num_classes = static_cast<int>(tables.num_classes(false));
  for (size_t row = 0; row < parents.size(); ++row) {
    predicted[row] = MoveClass(usual.classes[layer][row], parents[row],
                               usual.classes[layer - 1][row], num_classes);
  }
  return predicted;
}

}  // namespace sluice::codec
