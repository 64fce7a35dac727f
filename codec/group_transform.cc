#include "codec/group_transform.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/elements.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix ReadBasis(const Profile& profile, size_t group) {
  const std::span<const uint16_t> basis = profile.basis(group);
  const size_t n = profile.coded_channels(group);
  Matrix matrix(n, n);
  std::transform(basis.begin(), basis.end(), matrix.data(),
                 [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); });
  return matrix;
}

// Calls visit(first channel, channels) for each head of the coded planes.
template <typename Visit>
absl::Status ForEachHead(const Profile& profile, size_t group, Visit visit) {
  const GroupSpec& spec = profile.groups()[group];
  size_t channel = 0;
  for (size_t i = spec.first_plane; i < spec.first_plane + spec.num_planes; ++i) {
    if (!profile.is_coded(i)) continue;
    const PlaneSpec& plane = profile.geometry().planes[i];
    for (uint32_t head = 0; head < plane.num_heads; ++head, channel += plane.head_dim) {
      RETURN_IF_ERROR(visit(channel, plane.head_dim));
    }
  }
  return absl::OkStatus();
}

// The inverse of the basis. A basis is W^-1 E with E orthogonal and W block-diagonal by heads, so
// that the Gram matrix of a head's channels is W^-2, and the inverse is, head by head, the basis
// times the inverse of that.
absl::StatusOr<Matrix> Invert(const Profile& profile, size_t group, const Matrix& basis) {
  Matrix inverse(basis.rows(), basis.cols());
  RETURN_IF_ERROR(ForEachHead(profile, group, [&](size_t first, size_t count) -> absl::Status {
    const auto head = basis.middleCols(first, count);
    const Eigen::LLT<Eigen::MatrixXf> gram(head.transpose() * head);
    if (gram.info() != Eigen::Success) {
      return absl::FailedPreconditionError(
          absl::StrCat("groups[", group, "].basis of the profile is singular"));
    }
    inverse.middleCols(first, count) = gram.solve(head.transpose()).transpose();
    return absl::OkStatus();
  }));
  return inverse;
}

absl::StatusOr<GroupAnalysis> MakeAnalysis(const Profile& profile, size_t group) {
  const Matrix basis = ReadBasis(profile, group);
  const size_t n = basis.rows();
  ASSIGN_OR_RETURN(const Matrix inverse, Invert(profile, group, basis));
  std::vector<uint16_t> bits(n * n);
  FloatToElements(ElementType::kBf16, std::span(inverse.data(), n * n),
                  std::as_writable_bytes(std::span(bits)));
  ASSIGN_OR_RETURN(PackedMatrix matrix,
                   PackedMatrix::Pack(bits, MatrixLayout::kOutputsByInputs, n, n));
  GroupAnalysis analysis{.matrix = std::move(matrix), .gains = std::vector<float>(n)};
  Eigen::Map<Eigen::RowVectorXf>(analysis.gains.data(), n) = basis.cwiseAbs().colwise().sum();
  return analysis;
}

}  // namespace

absl::StatusOr<const PackedMatrix*> TransformCache::Synthesis(const Profile& profile,
                                                              size_t group) {
  Entry& entry = groups_[group];
  absl::MutexLock lock(&entry.mutex);
  if (entry.synthesis == nullptr) {
    const size_t n = profile.coded_channels(group);
    ASSIGN_OR_RETURN(PackedMatrix matrix, PackedMatrix::Pack(profile.basis(group),
                                                             MatrixLayout::kInputsByOutputs, n, n));
    entry.synthesis = std::make_unique<const PackedMatrix>(std::move(matrix));
  }
  return entry.synthesis.get();
}

absl::StatusOr<const GroupAnalysis*> TransformCache::Analysis(const Profile& profile,
                                                              size_t group) {
  Entry& entry = groups_[group];
  absl::MutexLock lock(&entry.mutex);
  if (entry.analysis == nullptr) {
    ASSIGN_OR_RETURN(GroupAnalysis analysis, MakeAnalysis(profile, group));
    entry.analysis = std::make_unique<const GroupAnalysis>(std::move(analysis));
  }
  return entry.analysis.get();
}

}  // namespace sluice::codec
