// oneDNN's matrix product behind absl::Status: for every machine.
//
// As ProductKernel; the cache of products has its own lock.
#pragma once

#include <list>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "codec/product_kernel.h"

namespace sluice::codec {

class OneDnnKernel final : public ProductKernel {
 public:
  // Distinct products that are kept ready.
  static constexpr size_t kMaxProducts = 64;

  static absl::StatusOr<std::unique_ptr<const ProductKernel>> Pack(std::span<const uint16_t> matrix,
                                                                   MatrixLayout layout,
                                                                   size_t num_inputs,
                                                                   size_t num_outputs);

  size_t packed_bytes() const override { return num_blocks() * block_bytes_; }
  bool takes_bf16() const override { return takes_bf16_; }
  size_t RoundUpInputs(size_t first_input, size_t num_inputs) const override;
  absl::Status Multiply(const Shape& shape, size_t first_input, const std::byte* x,
                        AlignedBuffer& library_scratch,
                        absl::FunctionRef<float*(size_t block)> target,
                        absl::FunctionRef<void(size_t block)> done) const override;

 private:
  struct Product;

  OneDnnKernel(size_t num_inputs, size_t num_outputs);
  // These throw what oneDNN throws.
  dnnl::memory::desc PackedFormat(size_t num_inputs) const;
  absl::Status PackBlocks(std::span<const uint16_t> matrix, MatrixLayout layout);
  std::shared_ptr<const Product> Find(const Shape& shape) const ABSL_LOCKS_EXCLUDED(mutex_);

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
