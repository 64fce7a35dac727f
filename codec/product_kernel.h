// Matrix products of one packed matrix, in blocks of output columns, by this machine's
// instructions.
//
// Thread-safe: immutable after Pack, but for what a kernel locks itself. A block's inputs are
// packed from first to last, so that a product of some of them reads a part of the same memory.
// Products run on the calling thread alone.
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
#include "codec/matrix.h"

namespace sluice::codec {

class ProductKernel {
 public:
  // Most tokens and inputs of a product: 1 MiB of them stays in the second cache, beside a block.
  static constexpr size_t kMaxTokens = 256;
  static constexpr size_t kMaxInputs = 2048;
  // Products begin at a multiple of so many inputs.
  static constexpr size_t kInputGrain = 64;

  // See PackedMatrix::Pack. REQUIRES: the sizes have been checked.
  static absl::StatusOr<std::unique_ptr<const ProductKernel>> Pack(std::span<const uint16_t> matrix,
                                                                   MatrixLayout layout,
                                                                   size_t num_inputs,
                                                                   size_t num_outputs);
  virtual ~ProductKernel() = default;

  size_t num_inputs() const { return num_inputs_; }
  size_t num_outputs() const { return num_outputs_; }
  size_t num_blocks() const { return NumBlocks(num_outputs_); }
  virtual size_t packed_bytes() const = 0;
  // Whether operands are bf16; fp32 on machines without such instructions.
  virtual bool takes_bf16() const = 0;
  size_t operand_bytes() const { return takes_bf16() ? sizeof(uint16_t) : sizeof(float); }

  // Inputs of the smallest product that has at least `num_inputs`, beginning at `first_input`. What
  // is past the last input must be zeros.
  virtual size_t RoundUpInputs(size_t first_input, size_t num_inputs) const = 0;

  struct Shape {
    size_t num_tokens = 0;  // 1 to kMaxTokens
    size_t num_inputs = 0;  // from RoundUpInputs; 1 to kMaxInputs
    bool add = false;       // to what the output holds

    bool operator==(const Shape&) const = default;
  };

  // For each block, puts [num_tokens][kBlockColumns] sums at target(block), then calls done(block).
  // `x` is [num_tokens][num_inputs], for the inputs from `first_input`, a multiple of kInputGrain.
  virtual absl::Status Multiply(const Shape& shape, size_t first_input, const std::byte* x,
                                AlignedBuffer& library_scratch,
                                absl::FunctionRef<float*(size_t block)> target,
                                absl::FunctionRef<void(size_t block)> done) const = 0;

 protected:
  ProductKernel(size_t num_inputs, size_t num_outputs)
      : num_inputs_(num_inputs), num_outputs_(num_outputs) {}

  // Copies a block of `matrix`, [num_inputs][kBlockColumns], padded with zeros.
  void CopyBlock(std::span<const uint16_t> matrix, MatrixLayout layout, size_t block,
                 uint16_t* out) const;

 private:
  const size_t num_inputs_;
  const size_t num_outputs_;
};

}  // namespace sluice::codec
