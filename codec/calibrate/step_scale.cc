#include "codec/calibrate/step_scale.h"

#include <cmath>
#include <utility>

namespace sluice::codec {
namespace {

constexpr int kMaxBracketings = 200;
constexpr int kBisections = 24;

}  // namespace

void DivergenceModel::Add(const GroupBasis& basis, std::span<const double> harm,
                          Dense<float> coefficients) {
  Group& group = groups_.emplace_back();
  group.row_harm.resize(coefficients.rows);
  for (size_t p = 0; p < harm.size(); ++p) {
    for (size_t row = 0; row < coefficients.rows; ++row) {
      group.row_harm[row] += harm[p] * basis.plane_shares.row(p)[row];
    }
  }
  group.coefficients = std::move(coefficients);
}

double DivergenceModel::Predict(double scale) const {
  const auto inverse = static_cast<float>(1 / scale);
  double sum = 0;
  for (const Group& group : groups_) {
    for (size_t row = 0; row < group.row_harm.size(); ++row) {
      double squares = 0;
      for (float coefficient : group.coefficients.row(row)) {
        const float bins = coefficient * inverse;
        const float error = bins - std::nearbyint(bins);
        squares += error * error;
      }
      sum += group.row_harm[row] * squares / static_cast<double>(group.coefficients.columns);
    }
  }
  return sum * scale * scale;
}

double DivergenceModel::SolveScale(double target) const {
  // Divergence grows with the scale up to what leaving out everything costs; a target beyond that
  // ends the search at a scale where nothing is left to lose.
  double high = 1;
  for (int i = 0; i < kMaxBracketings && Predict(high) > target; ++i) high /= 2;
  for (int i = 0; i < kMaxBracketings && Predict(high) < target; ++i) high *= 2;
  double low = high / 2;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = std::sqrt(low * high);
    (Predict(middle) < target ? low : high) = middle;
  }
  return low;
}

}  // namespace sluice::codec
