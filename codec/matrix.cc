#include "codec/matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "codec/elements.h"
#include "codec/product_kernel.h"
#include "codec/status_macros.h"
#include "codec/transpose.h"

namespace sluice::codec {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 20;
constexpr size_t kSlab = ProductKernel::kMaxTokens;
constexpr size_t kPanel = ProductKernel::kMaxInputs;

// Calls work(first, count) for parts of at most `most`.
template <typename Work>
absl::Status ForEachPart(size_t total, size_t most, Work work) {
  for (size_t first = 0; first < total; first += most) {
    RETURN_IF_ERROR(work(first, std::min(most, total - first)));
  }
  return absl::OkStatus();
}

absl::Status CheckSizes(size_t in, size_t expected_in, size_t out, size_t expected_out) {
  if (in == expected_in && out == expected_out) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("matrix product: ", in, " inputs and ", out,
                                                 " outputs, expected ", expected_in, " and ",
                                                 expected_out));
}

enum class Term {
  kValue,     // to the kernel's precision
  kRemainder  // of a bf16 kernel's
};

using Done = absl::FunctionRef<void(size_t block)>;

struct ProductMemory {
  AlignedBuffer& inputs;
  AlignedBuffer& library;
};

// Multiplies rows of integers, the matrix's inputs from `first`, into target(block).
absl::Status MultiplyRows(const ProductKernel& kernel, RowsView<const int16_t> rows, Term term,
                          size_t first, bool add, ProductMemory memory,
                          absl::FunctionRef<float*(size_t block)> target, Done done) {
  AlignedBuffer& inputs = memory.inputs;
  const size_t pitch = kernel.RoundUpInputs(first, rows.num_rows);
  const size_t size = rows.num_tokens * pitch;
  RETURN_IF_ERROR(inputs.Reserve(size * kernel.operand_bytes()));
  if (!kernel.takes_bf16()) {
    TransposeToFloat(rows, pitch, inputs.As<float>(size).data());
  } else if (term == Term::kValue) {
    TransposeToBf16(rows, pitch, inputs.As<uint16_t>(size).data());
  } else {
    TransposeLowToBf16(rows, pitch, inputs.As<uint16_t>(size).data());
  }
  return kernel.Multiply({rows.num_tokens, pitch, add}, first, inputs.data(), memory.library,
                         target, done);
}

// The inputs [first, first + count) of tokens that have `pitch`, as the kernel wants them: where
// they are, or in `inputs`.
absl::StatusOr<const std::byte*> GatherInputs(const ProductKernel& kernel, const uint16_t* y,
                                              size_t num_tokens, size_t pitch, size_t first,
                                              size_t count, AlignedBuffer& inputs) {
  const size_t padded = kernel.RoundUpInputs(first, count);
  if (kernel.takes_bf16() && padded == pitch) return reinterpret_cast<const std::byte*>(y);
  const size_t operand_bytes = kernel.operand_bytes();
  RETURN_IF_ERROR(inputs.Reserve(num_tokens * padded * operand_bytes));
  for (size_t t = 0; t < num_tokens; ++t) {
    const std::span<const uint16_t> token(y + t * pitch + first, count);
    std::byte* const out = inputs.data() + t * padded * operand_bytes;
    if (kernel.takes_bf16()) {
      std::memcpy(out, token.data(), token.size_bytes());
    } else {
      ElementsToFloat(ElementType::kBf16, std::as_bytes(token),
                      inputs.As<float>(num_tokens * padded).subspan(t * padded, count));
    }
    std::memset(out + count * operand_bytes, 0, (padded - count) * operand_bytes);
  }
  return inputs.data();
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
                                      ProductScratch& scratch, std::span<float> out,
                                      Ready ready) const {
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
    ready(0, num_tokens, num_outputs());
    return absl::OkStatus();
  }
  const size_t large_rows = kernel_->takes_bf16() ? RowsOfLargeValues(values, num_tokens) : 0;
  return ForEachPart(num_tokens, kSlab, [&](size_t token, size_t tokens) {
    const auto target = [&](size_t block) {
      return out.data() + BlockedIndex(num_tokens, token, block * kBlockColumns);
    };
    const auto complete = [&](size_t block) {
      ready(token, tokens, std::min((block + 1) * kBlockColumns, num_outputs()));
    };
    const auto incomplete = [](size_t) {};
    return ForEachPart(num_rows, kPanel, [&](size_t row, size_t rows) -> absl::Status {
      RowsView<const int16_t> part = {values.data() + row * num_tokens + token, num_tokens, rows,
                                      tokens};
      const bool last = row + rows == num_rows;
      const bool has_remainder = row < large_rows;
      ProductMemory memory = {scratch.inputs_, scratch.library_};
      RETURN_IF_ERROR(MultiplyRows(*kernel_, part, Term::kValue, row, row > 0, memory, target,
                                   last && !has_remainder ? Done(complete) : Done(incomplete)));
      if (!has_remainder) return absl::OkStatus();
      part.num_rows = std::min(large_rows - row, rows);
      return MultiplyRows(*kernel_, part, Term::kRemainder, row, true, memory, target,
                          last ? Done(complete) : Done(incomplete));
    });
  });
}

absl::StatusOr<bool> PackedMatrix::Analyze(std::span<const uint16_t> y, size_t num_tokens,
                                           int16_t limit, ProductScratch& scratch,
                                           std::span<int16_t> out) const {
  if (num_tokens == 0 || num_tokens > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("matrix product of ", num_tokens, " tokens"));
  }
  RETURN_IF_ERROR(
      CheckSizes(y.size(), num_tokens * num_inputs(), out.size(), num_tokens * num_outputs()));
  // Sums of one panel are turned while they are in the first cache; those of several wait.
  const bool one_panel = num_inputs() <= kPanel;
  bool fits = true;
  RETURN_IF_ERROR(ForEachPart(num_tokens, kSlab, [&](size_t token, size_t tokens) -> absl::Status {
    const size_t block_size = tokens * kBlockColumns;
    const size_t size = one_panel ? block_size : block_size * kernel_->num_blocks();
    RETURN_IF_ERROR(scratch.sums_.Reserve(size * sizeof(float)));
    const auto target = [&](size_t block) {
      return scratch.sums_.As<float>(size).data() + (one_panel ? 0 : block * block_size);
    };
    return ForEachPart(num_inputs(), kPanel, [&](size_t first, size_t count) -> absl::Status {
      ASSIGN_OR_RETURN(const std::byte* x,
                       GatherInputs(*kernel_, y.data() + token * num_inputs(), tokens, num_inputs(),
                                    first, count, scratch.inputs_));
      const auto turn = [&](size_t block) {
        if (first + count < num_inputs()) return;
        const size_t row = block * kBlockColumns;
        fits &= RoundBlock(target(block), limit,
                           {out.data() + row * num_tokens + token, num_tokens,
                            std::min(kBlockColumns, num_outputs() - row), tokens});
      };
      return kernel_->Multiply({tokens, kernel_->RoundUpInputs(first, count), first > 0}, first, x,
                               scratch.library_, target, turn);
    });
  }));
  return fits;
}

}  // namespace sluice::codec
