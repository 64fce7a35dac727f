// oneDNN's matrix product behind absl::Status: one packed matrix, in blocks of output columns.
//
// Thread-safe: immutable after Pack, but for the cache of products, which has its own lock.
// A block's inputs are packed from first to last, so that a product of some of them reads a part of
// the same memory. oneDNN runs on the calling thread alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "codec/aligned_buffer.h"
#include "codec/column_blocks.h"
#include "codec/matrix.h"

namespace sluice::codec {

class ProductKernel {
 public:
  // Most tokens and inputs of a product: 1 MiB of them stays in the second cache, beside a block.
  static constexpr size_t kMaxTokens = 256;
  static constexpr size_t kMaxInputs = 2048;
  // Inputs are counted in these: so many make the fastest loops.
  static constexpr size_t kInputGrain = 64;
  // Distinct products that are kept ready.
  static constexpr size_t kMaxProducts = 64;

  // See PackedMatrix::Pack. REQUIRES: the sizes have been checked.
  static absl::StatusOr<std::unique_ptr<const ProductKernel>> Pack(std::span<const uint16_t> matrix,
                                                                   MatrixLayout layout,
                                                                   size_t num_inputs,
                                                                   size_t num_outputs);

  size_t num_inputs() const { return num_inputs_; }
  size_t num_outputs() const { return num_outputs_; }
  size_t num_blocks() const { return NumBlocks(num_outputs_); }
  size_t packed_bytes() const { return num_blocks() * block_bytes_; }
  // Whether operands are bf16; fp32 on machines without such instructions.
  bool takes_bf16() const { return takes_bf16_; }
  size_t operand_bytes() const { return takes_bf16_ ? sizeof(uint16_t) : sizeof(float); }

  // Inputs of the smallest product that has at least `num_inputs`, beginning at `first_input`.
  size_t RoundUpInputs(size_t first_input, size_t num_inputs) const;

  struct Shape {
    size_t num_tokens = 0;  // 1 to kMaxTokens
    size_t num_inputs = 0;  // from RoundUpInputs; 1 to kMaxInputs
    bool add = false;       // to what the output holds

    bool operator==(const Shape&) const = default;
  };

  // For each block, puts [num_tokens][kBlockColumns] sums at target(block), then calls done(block).
  // `x` is [num_tokens][num_inputs], for the inputs from `first_input`, a multiple of kInputGrain.
  absl::Status Multiply(const Shape& shape, size_t first_input, const std::byte* x,
                        AlignedBuffer& library_scratch,
                        absl::FunctionRef<float*(size_t block)> target,
                        absl::FunctionRef<void(size_t block)> done) const;

 private:
  struct Product;

  ProductKernel(size_t num_inputs, size_t num_outputs);
  // These throw what oneDNN throws.
  dnnl::memory::desc PackedFormat(size_t num_inputs) const;
  absl::Status PackBlocks(std::span<const uint16_t> matrix, MatrixLayout layout);
  std::shared_ptr<const Product> Find(const Shape& shape) const ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t num_inputs_;
  const size_t num_outputs_;
  const bool takes_bf16_;
  dnnl::engine engine_;
  size_t block_bytes_ = 0;
  size_t grain_bytes_ = 0;  // of kInputGrain inputs of a block
  AlignedBuffer weights_;   // [num_blocks][block_bytes_]
  mutable absl::Mutex mutex_;
  // The one used last comes first.
  mutable std::list<std::shared_ptr<const Product>> products_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::codec
