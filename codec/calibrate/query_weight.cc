#include "codec/calibrate/query_weight.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr double kIdentityShare = 0.1;

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

absl::StatusOr<HeadWeight> MakeHeadWeight(std::span<const float> moment, size_t dim, double scale) {
  HeadWeight weight;
  weight.moment = Dense<double>(dim, dim);
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j) {
      weight.moment.row(i)[j] = scale * (moment[i * dim + j] + moment[j * dim + i]) / 2;
    }
    weight.moment.row(i)[i] += kIdentityShare;
  }
  Dense<double> vectors = weight.moment;
  ASSIGN_OR_RETURN(std::vector<double> values, Diagonalise(vectors));
  // A second moment has no negative eigenvalue, but a file may say anything.
  for (double& value : values) value = std::sqrt(std::max(value, kIdentityShare));
  weight.root = Compose(vectors, values);
  for (double& value : values) value = 1 / value;
  weight.inverse_root = Compose(vectors, values);
  return weight;
}

absl::StatusOr<std::vector<HeadWeight>> MakePlaneWeight(const std::string& name,
                                                        const PlaneSpec& spec,
                                                        std::span<const float> moments) {
  const size_t dim = spec.head_dim;
  if (moments.size() != spec.num_heads * dim * dim) {
    return absl::InvalidArgumentError(absl::StrCat("queries of ", name, " have ", moments.size(),
                                                   " numbers, not ", spec.num_heads, " x ", dim,
                                                   " x ", dim));
  }
  if (!std::ranges::all_of(moments, [](float value) { return std::isfinite(value); })) {
    return absl::InvalidArgumentError(absl::StrCat("queries of ", name, " hold NaN or Inf"));
  }
  double trace = 0;
  for (size_t i = 0; i < spec.channels(); ++i) trace += moments[i * dim + i % dim];
  if (!(trace > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("queries of ", name, " are all zero"));
  }
  const double scale = static_cast<double>(spec.channels()) / trace;
  std::vector<HeadWeight> heads;
  for (size_t head = 0; head < spec.num_heads; ++head) {
    ASSIGN_OR_RETURN(heads.emplace_back(),
                     MakeHeadWeight(moments.subspan(head * dim * dim, dim * dim), dim, scale));
  }
  return heads;
}

}  // namespace

absl::StatusOr<QueryWeights> MakeQueryWeights(const Contexts& contexts,
                                              std::span<const std::vector<float>> moments) {
  QueryWeights weights(contexts.geometry.planes.size());
  for (size_t i = 0; i < moments.size(); ++i) {
    if (moments[i].empty()) continue;
    ASSIGN_OR_RETURN(weights[i], MakePlaneWeight(contexts.plane_names[i],
                                                 contexts.geometry.planes[i], moments[i]));
  }
  return weights;
}

}  // namespace sluice::codec
