// The little linear algebra that calibration needs, by BLAS and LAPACK.
//
// Thread-safe; BLAS uses all cores. On one machine the same input gives the same bits; another
// number of cores or another kind may change the last ones.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::codec {

// Row-major.
template <typename T>
struct Dense {
  Dense() = default;
  Dense(size_t rows, size_t columns) : rows(rows), columns(columns), values(rows * columns) {}

  std::span<T> row(size_t i) { return std::span(values).subspan(i * columns, columns); }
  std::span<const T> row(size_t i) const { return std::span(values).subspan(i * columns, columns); }

  size_t rows = 0;
  size_t columns = 0;
  std::vector<T> values;
};

// out = a b.
void Multiply(const Dense<float>& a, const Dense<float>& b, Dense<float>& out);

// Sums x x^T over many x, [size][any number of columns]: sums in float, sums of those in double.
class OuterProductSum {
 public:
  explicit OuterProductSum(size_t size) : part_(size, size), sum_(size, size) {}

  void Add(const Dense<float>& x);
  // The sum times `factor`. Leaves this empty.
  Dense<double> Take(double factor);

 private:
  Dense<float> part_;  // upper triangles
  Dense<double> sum_;
};

// Columns [first, first + block.rows) of `matrix` become those times `block`, a square; likewise
// rows. A block diagonal matrix is a list of such blocks.
void MultiplyColumns(const Dense<double>& block, size_t first, Dense<double>& matrix);
void MultiplyColumns(const Dense<double>& block, size_t first, Dense<float>& matrix);
void MultiplyRows(const Dense<double>& block, size_t first, Dense<double>& matrix);

// The eigenvalues of a symmetric matrix, falling. Its rows become the eigenvectors, of length 1,
// their largest component positive. InvalidArgument if one of its values is no number.
absl::StatusOr<std::vector<double>> Diagonalise(Dense<double>& symmetric);

}  // namespace sluice::codec
