// The matrix products of a calibrated profile: coefficients to channels and back.
//
// A PackedMatrix is immutable after Pack, but for a cache with its own lock, and thread-safe. Its
// products run on the calling thread alone. Matrices are bf16; sums are fp32 and depend on the
// machine in their last bits. Machines with bf16 instructions use them, others work in fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/aligned_buffer.h"
#include "codec/column_blocks.h"

namespace sluice::codec {

class ProductKernel;

// Memory for the products of one thread at a time. Grows to what the largest has needed: about 1
// MiB, and for an Analyze of more than 2048 inputs another KiB for each output.
class ProductScratch {
 private:
  friend class PackedMatrix;

  AlignedBuffer inputs_;
  AlignedBuffer sums_;
  AlignedBuffer library_;
};

enum class MatrixLayout { kInputsByOutputs, kOutputsByInputs };

class PackedMatrix {
 public:
  static constexpr size_t kMaxSide = 1 << 17;
  static constexpr size_t kMaxElements = size_t{1} << 31;
  // Copies `matrix`, bf16, [num_inputs][num_outputs] or its transpose, into the form that this
  // machine multiplies fastest, which takes as much memory (twice, without bf16 instructions).
  // Fails if a side is 0 or too large, sizes do not match, or memory is out.
  static absl::StatusOr<PackedMatrix> Pack(std::span<const uint16_t> matrix, MatrixLayout layout,
                                           size_t num_inputs, size_t num_outputs);
  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;
  ~PackedMatrix();

  size_t num_inputs() const;
  size_t num_outputs() const;
  size_t packed_bytes() const;

  // Called when the first `num_columns` columns of some tokens are complete, with ever more
  // columns, while the last of them are in the second cache.
  using Ready = absl::FunctionRef<void(size_t first_token, size_t num_tokens, size_t num_columns)>;

  // Synthesis. out[token][output] = sum over rows of values[row][token] * matrix[row][output], out
  // in column blocks. `values` is [rows][num_tokens], the first of the num_inputs rows; the others
  // are zero and cost no time. Products are exact, whatever the values.
  // REQUIRES: out.size() == BlockedSize(num_tokens, num_outputs()).
  absl::Status Synthesize(
      std::span<const int16_t> values, size_t num_tokens, ProductScratch& scratch,
      std::span<float> out, Ready ready = [](size_t, size_t, size_t) {}) const;

  // Analysis. out[output][token] = sum over inputs of y[token][input] * matrix[input][output], to
  // the nearest integer, ties to even. `y` is bf16, [num_tokens][num_inputs]; out is
  // [num_outputs][num_tokens]. False, and `out` is unspecified, if a sum is not a number or larger
  // than `limit`.
  absl::StatusOr<bool> Analyze(std::span<const uint16_t> y, size_t num_tokens, int16_t limit,
                               ProductScratch& scratch, std::span<int16_t> out) const;

 private:
  explicit PackedMatrix(std::unique_ptr<const ProductKernel> kernel);

  std::unique_ptr<const ProductKernel> kernel_;
};

}  // namespace sluice::codec
