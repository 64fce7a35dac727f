#include "codec/product_kernel.h"

#include <algorithm>

#include "codec/amx_kernel.h"
#include "codec/onednn_kernel.h"

namespace sluice::codec {

absl::StatusOr<std::unique_ptr<const ProductKernel>> ProductKernel::Pack(
    std::span<const uint16_t> matrix, MatrixLayout layout, size_t num_inputs, size_t num_outputs) {
  if (AmxKernel::Runs()) return AmxKernel::Pack(matrix, layout, num_inputs, num_outputs);
  return OneDnnKernel::Pack(matrix, layout, num_inputs, num_outputs);
}

void ProductKernel::CopyBlock(std::span<const uint16_t> matrix, MatrixLayout layout, size_t block,
                              uint16_t* out) const {
  const size_t first = block * kBlockColumns;
  const size_t columns = std::min(kBlockColumns, num_outputs_ - first);
  if (columns < kBlockColumns) std::fill_n(out, num_inputs_ * kBlockColumns, uint16_t{0});
  if (layout == MatrixLayout::kInputsByOutputs) {
    for (size_t i = 0; i < num_inputs_; ++i) {
      std::copy_n(matrix.data() + i * num_outputs_ + first, columns, out + i * kBlockColumns);
    }
    return;
  }
  constexpr size_t kTile = 32;
  for (size_t tile = 0; tile < num_inputs_; tile += kTile) {
    const size_t end = std::min(tile + kTile, num_inputs_);
    for (size_t c = 0; c < columns; ++c) {
      const uint16_t* const row = matrix.data() + (first + c) * num_inputs_;
      for (size_t i = tile; i < end; ++i) out[i * kBlockColumns + c] = row[i];
    }
  }
}

}  // namespace sluice::codec
