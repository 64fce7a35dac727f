#include "codec/calibrate/step_scale.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

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

double DivergenceModel::EstimateRate(double scale) const {
  double bits = 0;
  size_t rows = 0;
  for (const Group& group : groups_) {
    for (size_t row = 0; row < group.row_harm.size(); ++row) {
      double squares = 0;
      for (double coefficient : group.coefficients.row(row)) squares += coefficient * coefficient;
      const double variance = squares / static_cast<double>(group.coefficients.columns);
      bits += 0.5 * std::log2(1 + 12 * variance / (scale * scale));
    }
    rows += group.row_harm.size();
  }
  return bits / static_cast<double>(std::max<size_t>(rows, 1));
}

absl::StatusOr<double> DivergenceModel::SolveScale(double target) const {
  // Divergence grows with the scale up to what leaving out everything costs.
  double high = 1;
  for (int i = 0; i < kMaxBracketings && Predict(high) > target; ++i) high /= 2;
  for (int i = 0; i < kMaxBracketings && Predict(high) < target; ++i) high *= 2;
  if (Predict(high) < target) {
    return absl::OutOfRangeError(absl::StrCat("leaving out all planes would cost less than ",
                                              target,
                                              " nats: the sensitivities are too small, or the "
                                              "target KL is too large"));
  }
  double low = high / 2;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = std::sqrt(low * high);
    (Predict(middle) < target ? low : high) = middle;
  }
  return low;
}

}  // namespace sluice::codec
