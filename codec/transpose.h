// Between rows of coefficients, [row][token], and token-major operands of a matrix product.
//
// Pure functions, thread-safe; the fastest instructions of the machine are found at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::codec {

// Integers up to this size are exact in bf16.
inline constexpr int kMaxBf16Integer = 256;

// Number of leading rows that contain all values beyond kMaxBf16Integer. `values` is
// [rows][num_tokens].
size_t RowsOfLargeValues(std::span<const int16_t> values, size_t num_tokens);

// A part of a table of rows: [num_rows][num_tokens], one row every `pitch` elements.
template <typename Element>
struct RowsView {
  Element* data;
  size_t pitch;
  size_t num_rows;
  size_t num_tokens;
};

// The parts of integers that add up to them exactly, both in bf16: the 8 leading bits, and the
// rest, which is 0 up to kMaxBf16Integer. out[token][row] = part of values[row][token]; columns
// from num_rows to `pitch` become 0. REQUIRES: out has num_tokens rows of `pitch` >= num_rows
// elements.
void TransposeToBf16(RowsView<const int16_t> values, size_t pitch, uint16_t* out);
void TransposeLowToBf16(RowsView<const int16_t> values, size_t pitch, uint16_t* out);

// The same in fp32, whole.
void TransposeToFloat(RowsView<const int16_t> values, size_t pitch, float* out);

// rows[row][token] = block[token][row], one block of kBlockColumns columns, contiguous, to the
// nearest integer, ties to even. False, and the rows are unspecified, if an element is not a number
// or larger than `limit`. REQUIRES: rows.num_rows <= kBlockColumns.
bool RoundBlock(const float* block, int16_t limit, RowsView<int16_t> rows);

}  // namespace sluice::codec
