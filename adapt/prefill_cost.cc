#include "adapt/prefill_cost.h"

#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace sluice::adapt {
namespace {

using Vector3 = Eigen::Vector3d;

Vector3 Terms(double new_tokens, double context_tokens) {
  return {1, new_tokens, new_tokens * (context_tokens + new_tokens / 2)};
}

// Shapes are alike when both token counts have the same power of two: what differs within is small
// against what the fit must tell apart.
bool Alike(const PrefillCost::Shape& shape, uint32_t new_tokens, uint32_t context_tokens) {
  return std::bit_width(shape.new_tokens) == std::bit_width(new_tokens) &&
         std::bit_width(shape.context_tokens) == std::bit_width(context_tokens);
}

}  // namespace

void PrefillCost::OnMeasured(uint32_t new_tokens, uint32_t context_tokens, TimeUs elapsed_us) {
  if (new_tokens == 0 || elapsed_us <= 0) return;
  if (!std::exchange(warm_, true)) return;
  const double us = static_cast<double>(elapsed_us);
  ++samples_;
  Remember(new_tokens, context_tokens, us);
  const TimeUs forecast_us = Forecast(new_tokens, context_tokens);
  if (forecast_us <= 0) return;
  ratios_.push_back(std::clamp(us / static_cast<double>(forecast_us), 1 / kMaxScale, kMaxScale));
  if (ratios_.size() > kMaxRatios) ratios_.pop_front();
  UpdateScale();
}

// The fit takes each shape's cost per token at its least, so that samples taken on a busy GPU do
// not bend it.
void PrefillCost::Remember(uint32_t new_tokens, uint32_t context_tokens, double us) {
  const auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
    return Alike(shape, new_tokens, context_tokens);
  });
  if (found == shapes_.end()) {
    if (shapes_.size() >= kMaxShapes) return;
    shapes_.push_back({new_tokens, context_tokens, us});
  } else if (us / new_tokens < found->us / found->new_tokens) {
    *found = {new_tokens, context_tokens, us};
  } else {
    return;
  }
  Fit();
}

// Least squares of the relative error with a, b, c not negative: the best of all choices of which
// terms are zero.
void PrefillCost::Fit() {
  double best_error = INFINITY;
  Vector3 best = Vector3::Zero();
  for (int choice = 1; choice < 8; ++choice) {
    const int num_terms = std::popcount(static_cast<unsigned>(choice));
    if (static_cast<size_t>(num_terms) > shapes_.size()) continue;
    Eigen::MatrixXd terms(shapes_.size(), num_terms);
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const Vector3 all = Terms(shapes_[i].new_tokens, shapes_[i].context_tokens) / shapes_[i].us;
      for (int term = 0, column = 0; term < 3; ++term) {
        if (choice >> term & 1) terms(static_cast<long>(i), column++) = all[term];
      }
    }
    const Eigen::VectorXd ones = Eigen::VectorXd::Ones(static_cast<long>(shapes_.size()));
    const Eigen::VectorXd solution = terms.colPivHouseholderQr().solve(ones);
    if (!solution.allFinite() || solution.minCoeff() < 0) continue;
    const double error = (terms * solution - ones).squaredNorm();
    // Of equal fits the one with fewer terms, and work per token before a start.
    const bool simpler = choice == 2 && shapes_.size() == 1;
    if (error >= best_error * (1 - 1e-9) && !simpler) continue;
    best_error = error;
    best = Vector3::Zero();
    for (int term = 0, column = 0; term < 3; ++term) {
      if (choice >> term & 1) best[term] = solution[column++];
    }
  }
  a_ = best[0];
  b_ = best[1];
  c_ = best[2];
}

void PrefillCost::UpdateScale() {
  scale_ = 1;
  high_scale_ = kUntrustedFactor;
  if (ratios_.empty()) return;
  const auto latest = ratios_.end() - static_cast<long>(std::min(ratios_.size(), kMedianRatios));
  std::vector<double> sorted(latest, ratios_.end());
  std::sort(sorted.begin(), sorted.end());
  scale_ = sorted[sorted.size() / 2];
  sorted.assign(ratios_.begin(), ratios_.end());
  std::sort(sorted.begin(), sorted.end());
  high_scale_ = sorted[static_cast<size_t>(kHighQuantile * static_cast<double>(sorted.size() - 1))];
  if (sorted.size() < kTrustedRatios) high_scale_ *= kUntrustedFactor;
}

TimeUs PrefillCost::Forecast(uint32_t new_tokens, uint32_t context_tokens) const {
  if (!known() || new_tokens == 0) return 0;
  const double us = Terms(new_tokens, context_tokens).dot(Vector3(a_, b_, c_));
  constexpr double kMostUs = 1e12;
  return std::max<TimeUs>(1, std::llround(std::min(us, kMostUs)));
}

PrefillCost::State PrefillCost::state() const {
  return {shapes_, std::vector<double>(ratios_.begin(), ratios_.end())};
}

void PrefillCost::Restore(const State& state) {
  *this = PrefillCost();
  for (const Shape& shape : state.shapes) {
    const bool good = shape.new_tokens > 0 && std::isfinite(shape.us) && shape.us > 0;
    if (good && shapes_.size() < kMaxShapes) shapes_.push_back(shape);
  }
  for (double ratio : state.ratios) {
    const bool good = std::isfinite(ratio) && ratio >= 1 / kMaxScale && ratio <= kMaxScale;
    if (good && ratios_.size() < kMaxRatios) ratios_.push_back(ratio);
  }
  if (shapes_.empty()) return;
  samples_ = kMinSamples;
  Fit();
  UpdateScale();
}

}  // namespace sluice::adapt
