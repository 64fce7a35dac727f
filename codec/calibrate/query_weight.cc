#include "codec/calibrate/query_weight.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr double kIdentityShare = 0.09;
constexpr double kMinHeadCost = 1.0 / 64;
constexpr float kMaxMoment = 1e30f;
constexpr double kMomentSlack = 1.1;  // of squares, for rounding

// vectors' diag(values) vectors.
Dense<double> Compose(const Dense<double>& vectors, std::span<const double> values) {
  const size_t n = vectors.rows;
  Dense<double> result(n, n);
  for (size_t k = 0; k < n; ++k) {
    const auto vector = vectors.row(k);
    for (size_t i = 0; i < n; ++i) {
      const double factor = values[k] * vector[i];
      for (size_t j = 0; j < n; ++j) result.row(i)[j] += factor * vector[j];
    }
  }
  return result;
}

absl::StatusOr<HeadWeight> MakeHeadWeight(std::span<const float> moment, size_t dim,
                                          double factor) {
  HeadWeight weight;
  weight.moment = Dense<double>(dim, dim);
  double trace = 0;
  for (size_t i = 0; i < dim; ++i) trace += moment[i * dim + i];
  const double scale = (1 - kIdentityShare) * static_cast<double>(dim) / trace;
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j) {
      weight.moment.row(i)[j] = scale * (moment[i * dim + j] + moment[j * dim + i]) / 2;
    }
    weight.moment.row(i)[i] += kIdentityShare;
  }
  Dense<double> vectors = weight.moment;
  ASSIGN_OR_RETURN(std::vector<double> values, Diagonalise(vectors));
  // A second moment has no negative eigenvalue, but a file may say anything.
  for (double& value : values) value = factor * std::max(value, kIdentityShare);
  weight.moment = Compose(vectors, values);
  for (double& value : values) value = std::sqrt(value);
  weight.root = Compose(vectors, values);
  for (double& value : values) value = 1 / value;
  weight.inverse_root = Compose(vectors, values);
  return weight;
}

HeadWeight MakeUniformWeight(size_t dim, double factor) {
  const auto diagonal = [dim](double value) {
    Dense<double> matrix(dim, dim);
    for (size_t i = 0; i < dim; ++i) matrix.row(i)[i] = value;
    return matrix;
  };
  return {diagonal(factor), diagonal(std::sqrt(factor)), diagonal(1 / std::sqrt(factor))};
}

// Costs of a plane's heads, scaled so that their mean is 1.
std::vector<double> RelativeCosts(std::span<const double> costs) {
  const double mean =
      std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size());
  std::vector<double> factors;
  for (double cost : costs) factors.push_back(std::max(cost / mean, kMinHeadCost));
  return factors;
}

// Is it a second moment, as far as single elements and pairs tell?
absl::Status CheckMoment(const std::string& of_head, std::span<const float> moment, size_t dim) {
  double trace = 0;
  for (size_t i = 0; i < moment.size(); ++i) {
    const size_t row = i / dim, column = i % dim;
    const auto bad = [&](const auto&... what) {
      return absl::InvalidArgumentError(
          absl::StrCat(of_head, "[", row, "][", column, "] is ", what...));
    };
    const double squares = double{moment[row * dim + row]} * moment[column * dim + column];
    if (!(std::abs(moment[i]) <= kMaxMoment)) {
      return bad(moment[i], ", not of a magnitude up to ", kMaxMoment);
    }
    if (row == column && moment[i] < 0) return bad("negative, but is a mean of squares");
    if (double{moment[i]} * moment[i] > kMomentSlack * std::abs(squares)) {
      return bad(moment[i], ", more than the means of the squares admit");
    }
    if (row == column) trace += moment[i];
  }
  if (trace > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(of_head, "are all zero"));
}

absl::Status CheckMoments(const std::string& name, const PlaneSpec& spec,
                          std::span<const float> moments) {
  const size_t dim = spec.head_dim;
  if (moments.size() != spec.num_heads * dim * dim) {
    return absl::InvalidArgumentError(absl::StrCat("queries of ", name, " have ", moments.size(),
                                                   " numbers, not ", spec.num_heads, " x ", dim,
                                                   " x ", dim));
  }
  for (size_t head = 0; head < spec.num_heads; ++head) {
    const std::string of_head = absl::StrCat("queries of ", name, ", head ", head, ", ");
    RETURN_IF_ERROR(CheckMoment(of_head, moments.subspan(head * dim * dim, dim * dim), dim));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckQueries(const Contexts& contexts, std::span<const std::vector<float>> moments) {
  for (size_t i = 0; i < moments.size(); ++i) {
    if (moments[i].empty()) continue;
    RETURN_IF_ERROR(CheckMoments(contexts.plane_names[i], contexts.geometry.planes[i], moments[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<QueryWeights> MakeQueryWeights(const Contexts& contexts,
                                              std::span<const std::vector<float>> moments,
                                              std::span<const std::vector<double>> costs) {
  QueryWeights weights(contexts.geometry.planes.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    if (costs[i].empty()) continue;
    const size_t dim = contexts.geometry.planes[i].head_dim;
    const std::vector<double> factors = RelativeCosts(costs[i]);
    if (moments[i].empty()) {
      if (factors.size() == 1) continue;  // nothing to weigh it against
      for (double factor : factors) weights[i].push_back(MakeUniformWeight(dim, factor));
      continue;
    }
    const auto moment = std::span(moments[i]);
    for (size_t head = 0; head < factors.size(); ++head) {
      ASSIGN_OR_RETURN(
          weights[i].emplace_back(),
          MakeHeadWeight(moment.subspan(head * dim * dim, dim * dim), dim, factors[head]));
    }
  }
  return weights;
}

}  // namespace sluice::codec
