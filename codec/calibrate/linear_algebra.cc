#include "codec/calibrate/linear_algebra.h"

#include <cblas.h>
#include <lapacke.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::codec {

void Multiply(const Dense<float>& a, const Dense<float>& b, Dense<float>& out) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, a.rows, b.columns, a.columns, 1,
              a.values.data(), a.columns, b.values.data(), b.columns, 0, out.values.data(),
              out.columns);
}

void OuterProductSum::Add(const Dense<float>& x) {
  cblas_ssyrk(CblasRowMajor, CblasUpper, CblasNoTrans, x.rows, x.columns, 1, x.values.data(),
              x.columns, 0, part_.values.data(), part_.columns);
  for (size_t i = 0; i < sum_.rows; ++i) {
    const float* part = part_.row(i).data();
    double* sum = sum_.row(i).data();
    for (size_t j = i; j < sum_.columns; ++j) sum[j] += part[j];
  }
}

Dense<double> OuterProductSum::Take(double factor) {
  for (size_t i = 0; i < sum_.rows; ++i) {
    for (size_t j = i; j < sum_.columns; ++j) {
      sum_.row(i)[j] *= factor;
      sum_.row(j)[i] = sum_.row(i)[j];
    }
  }
  part_ = {};
  return std::exchange(sum_, {});
}

void MultiplyColumns(const Dense<double>& block, size_t first, Dense<double>& matrix) {
  const size_t n = block.rows;
  Dense<double> product(matrix.rows, n);
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, matrix.rows, n, n, 1,
              matrix.values.data() + first, matrix.columns, block.values.data(), n, 0,
              product.values.data(), n);
  for (size_t i = 0; i < matrix.rows; ++i) {
    std::ranges::copy(product.row(i), matrix.row(i).begin() + first);
  }
}

void MultiplyColumns(const Dense<double>& block, size_t first, Dense<float>& matrix) {
  const size_t n = block.rows;
  const std::vector<float> factors(block.values.begin(), block.values.end());
  Dense<float> product(matrix.rows, n);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, matrix.rows, n, n, 1,
              matrix.values.data() + first, matrix.columns, factors.data(), n, 0,
              product.values.data(), n);
  for (size_t i = 0; i < matrix.rows; ++i) {
    std::ranges::copy(product.row(i), matrix.row(i).begin() + first);
  }
}

void MultiplyRows(const Dense<double>& block, size_t first, Dense<double>& matrix) {
  const size_t n = block.rows;
  Dense<double> product(n, matrix.columns);
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, matrix.columns, n, 1,
              block.values.data(), n, matrix.row(first).data(), matrix.columns, 0,
              product.values.data(), matrix.columns);
  std::ranges::copy(product.values, matrix.row(first).begin());
}

absl::StatusOr<std::vector<double>> Diagonalise(Dense<double>& symmetric) {
  const size_t n = symmetric.rows;
  if (!std::ranges::all_of(symmetric.values, [](double v) { return std::isfinite(v); })) {
    return absl::InvalidArgumentError(
        absl::StrCat("the covariances of ", n,
                     " channels are no numbers: values of the caches, or of the queries' moments, "
                     "are too small or too large to be calibrated with"));
  }
  std::vector<double> eigenvalues(n);
  // In LAPACK's column-major order the eigenvectors are columns: our rows.
  const auto code =
      LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'V', 'U', n, symmetric.values.data(), n, eigenvalues.data());
  if (code == LAPACK_WORK_MEMORY_ERROR) {
    return absl::ResourceExhaustedError(
        absl::StrCat("not enough memory for the eigenvectors of ", n, " channels"));
  }
  if (code != 0) {
    return absl::InternalError(
        absl::StrCat("no eigenvectors of ", n, " channels: LAPACK says ", code));
  }
  std::ranges::reverse(eigenvalues);
  for (size_t i = 0; i < n / 2; ++i) {
    std::ranges::swap_ranges(symmetric.row(i), symmetric.row(n - 1 - i));
  }
  for (size_t i = 0; i < n; ++i) {
    const std::span<double> vector = symmetric.row(i);
    const double largest =
        *std::ranges::max_element(vector, {}, [](double component) { return std::abs(component); });
    if (largest < 0) {
      for (double& component : vector) component = -component;
    }
  }
  return eigenvalues;
}

}  // namespace sluice::codec
