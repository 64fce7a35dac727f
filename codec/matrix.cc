#include "codec/matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/elements.h"
#include "codec/product_kernel.h"
#include "codec/status_macros.h"
#include "codec/transpose.h"

namespace sluice::codec {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 20;

// Calls work(first token, number of tokens) for parts that a product can have.
template <typename Work>
absl::Status ForEachSlab(size_t num_tokens, Work work) {
  for (size_t token = 0; token < num_tokens; token += ProductKernel::kMaxTokens) {
    RETURN_IF_ERROR(work(token, std::min(ProductKernel::kMaxTokens, num_tokens - token)));
  }
  return absl::OkStatus();
}

absl::Status CheckSizes(size_t in, size_t expected_in, size_t out, size_t expected_out) {
  if (in == expected_in && out == expected_out) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("matrix product: ", in, " inputs and ", out,
                                                 " outputs, expected ", expected_in, " and ",
                                                 expected_out));
}

}  // namespace

PackedMatrix::PackedMatrix(std::unique_ptr<const ProductKernel> kernel)
    : kernel_(std::move(kernel)) {}
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;
PackedMatrix::~PackedMatrix() = default;

size_t PackedMatrix::num_inputs() const { return kernel_->num_inputs(); }
size_t PackedMatrix::num_outputs() const { return kernel_->num_outputs(); }
size_t PackedMatrix::packed_bytes() const { return kernel_->packed_bytes(); }

absl::StatusOr<PackedMatrix> PackedMatrix::Pack(std::span<const uint16_t> matrix,
                                                MatrixLayout layout, size_t num_inputs,
                                                size_t num_outputs) {
  if (num_inputs == 0 || num_outputs == 0 || num_inputs > kMaxSide || num_outputs > kMaxSide ||
      num_inputs * num_outputs > kMaxElements || matrix.size() != num_inputs * num_outputs) {
    return absl::InvalidArgumentError(absl::StrCat("cannot pack a matrix of ", num_inputs, " x ",
                                                   num_outputs, " from ", matrix.size(),
                                                   " elements"));
  }
  ASSIGN_OR_RETURN(auto kernel, ProductKernel::Pack(matrix, layout, num_inputs, num_outputs));
  return PackedMatrix(std::move(kernel));
}

absl::Status PackedMatrix::Synthesize(std::span<const int16_t> values, size_t num_tokens,
                                      ProductScratch& scratch, std::span<float> out) const {
  if (num_tokens == 0 || num_tokens > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("matrix product of ", num_tokens, " tokens"));
  }
  const size_t num_rows = values.size() / num_tokens;
  RETURN_IF_ERROR(CheckSizes(values.size(), num_rows * num_tokens, out.size(),
                             BlockedSize(num_tokens, num_outputs())));
  if (num_rows > num_inputs()) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_rows, " rows of a matrix of ", num_inputs()));
  }
  if (num_rows == 0) {
    std::fill(out.begin(), out.end(), 0.0f);
    return absl::OkStatus();
  }
  const size_t used = kernel_->RoundUpInputs(num_rows);
  const size_t low_rows = kernel_->takes_bf16() ? RowsOfLargeValues(values, num_tokens) : 0;
  const size_t low_used = kernel_->RoundUpInputs(low_rows);
  const size_t slab_tokens = std::min(num_tokens, ProductKernel::kMaxTokens);
  RETURN_IF_ERROR(scratch.inputs_.Reserve(slab_tokens * used * kernel_->operand_bytes()));
  RETURN_IF_ERROR(scratch.low_inputs_.Reserve(slab_tokens * low_used * sizeof(uint16_t)));
  return ForEachSlab(num_tokens, [&](size_t token, size_t tokens) -> absl::Status {
    const auto target = [&](size_t block) {
      return out.data() + BlockedIndex(num_tokens, token, block * kBlockColumns);
    };
    const auto done = [](size_t) {};
    const RowsView<const int16_t> rows = {values.data() + token, num_tokens, num_rows, tokens};
    if (!kernel_->takes_bf16()) {
      TransposeToFloat(rows, used, scratch.inputs_.As<float>(tokens * used).data());
      return kernel_->Multiply({tokens, used, false}, scratch.inputs_.data(), scratch.library_,
                               target, done);
    }
    TransposeToBf16(rows, used, scratch.inputs_.As<uint16_t>(tokens * used).data());
    RETURN_IF_ERROR(kernel_->Multiply({tokens, used, false}, scratch.inputs_.data(),
                                      scratch.library_, target, done));
    if (low_rows == 0) return absl::OkStatus();
    const RowsView<const int16_t> large = {rows.data, rows.pitch, low_rows, tokens};
    TransposeLowToBf16(large, low_used, scratch.low_inputs_.As<uint16_t>(tokens * low_used).data());
    return kernel_->Multiply({tokens, low_used, true}, scratch.low_inputs_.data(), scratch.library_,
                             target, done);
  });
}

absl::Status PackedMatrix::Analyze(std::span<const uint16_t> y, size_t num_tokens,
                                   ProductScratch& scratch, std::span<float> out) const {
  if (num_tokens == 0 || num_tokens > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("matrix product of ", num_tokens, " tokens"));
  }
  RETURN_IF_ERROR(
      CheckSizes(y.size(), num_tokens * num_inputs(), out.size(), num_tokens * num_outputs()));
  const size_t slab_tokens = std::min(num_tokens, ProductKernel::kMaxTokens);
  RETURN_IF_ERROR(scratch.block_.Reserve(slab_tokens * kBlockColumns * sizeof(float)));
  if (!kernel_->takes_bf16()) {
    RETURN_IF_ERROR(scratch.inputs_.Reserve(slab_tokens * num_inputs() * sizeof(float)));
  }
  return ForEachSlab(num_tokens, [&](size_t token, size_t tokens) -> absl::Status {
    const auto slab = y.subspan(token * num_inputs(), tokens * num_inputs());
    const std::byte* x = std::as_bytes(slab).data();
    if (!kernel_->takes_bf16()) {
      ElementsToFloat(ElementType::kBf16, std::as_bytes(slab),
                      scratch.inputs_.As<float>(slab.size()));
      x = scratch.inputs_.data();
    }
    float* const sums = scratch.block_.As<float>(tokens * kBlockColumns).data();
    const auto turn = [&](size_t block) {
      const size_t row = block * kBlockColumns;
      TransposeBlock(sums, {out.data() + row * num_tokens + token, num_tokens,
                            std::min(kBlockColumns, num_outputs() - row), tokens});
    };
    return kernel_->Multiply(
        {tokens, num_inputs(), false}, x, scratch.library_, [&](size_t) { return sums; }, turn);
  });
}

}  // namespace sluice::codec
