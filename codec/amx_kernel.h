// Matrix products by Intel's tile instructions (AMX), which multiply 16 tokens by 16 columns over
// 32 inputs at a time.
//
// As ProductKernel. A library's product of one block must load its sums, tiles and weights anew;
// here a panel of weights stays in the first cache for all tokens while the next one is on its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/product_kernel.h"

namespace sluice::codec {

class AmxKernel final : public ProductKernel {
 public:
  // Whether the processor has the instructions, the system lets this process use them, and oneDNN
  // may: the variable ONEDNN_MAX_CPU_ISA holds for both.
  static bool Runs();

  // REQUIRES (here and below): Runs().
  static absl::StatusOr<std::unique_ptr<const ProductKernel>> Pack(std::span<const uint16_t> matrix,
                                                                   MatrixLayout layout,
                                                                   size_t num_inputs,
                                                                   size_t num_outputs);

  size_t packed_bytes() const override;
  bool takes_bf16() const override { return true; }
  size_t RoundUpInputs(size_t first_input, size_t num_inputs) const override;
  absl::Status Multiply(const Shape& shape, size_t first_input, const std::byte* x,
                        AlignedBuffer& library_scratch,
                        absl::FunctionRef<float*(size_t block)> target,
                        absl::FunctionRef<void(size_t block)> done) const override;

 private:
  class Call;

  using ProductKernel::ProductKernel;

  size_t num_steps() const;

  // [half blocks][steps of 32 inputs][2 tiles][16 pairs of inputs][16 columns][2]
  AlignedBuffer weights_;
};

}  // namespace sluice::codec
