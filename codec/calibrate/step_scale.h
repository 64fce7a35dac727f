// The finest step that a target divergence allows.
//
// Thread-safe once filled.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/calibrate/group_basis.h"

namespace sluice::codec {

// Predicts divergence from samples of coefficients: what quantising them adds to each plane's
// variance, times the plane's sensitivity.
class DivergenceModel {
 public:
  static constexpr size_t kSamples = 256;  // of each row, at most

  // Coefficients of some tokens, [row][tokens], at a scale of 1. `harm` is of each plane of the
  // group: nats for an error of one step in all its channels.
  void Add(const GroupBasis& basis, std::span<const double> harm, Dense<float> coefficients);

  // Nats, if all steps are `scale` times as large.
  double Predict(double scale) const;
  // Bits per coefficient, about: what a normal distribution of each row's variance would need.
  double EstimateRate(double scale) const;
  // The scale that leads to `target`, to within a thousandth. OutOfRange if not even leaving out
  // everything does. REQUIRES: target > 0.
  absl::StatusOr<double> SolveScale(double target) const;

 private:
  struct Group {
    std::vector<double> row_harm;
    Dense<float> coefficients;
  };

  std::vector<Group> groups_;
};

}  // namespace sluice::codec
