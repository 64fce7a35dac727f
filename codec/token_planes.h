// Between the planes of a chunk and token-major columns, in one pass each way.
//
// A plane's channels are the columns [first_column, first_column + num_heads * head_dim) of its
// group. On the way to a plane, values are scaled, moved by their channel's mean, keys turned to
// their positions, and rounded to the element type; the other way undoes this. All machines give
// the same bits. Pure functions, thread-safe; the fastest instructions are found at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/column_blocks.h"
#include "codec/geometry.h"
#include "codec/rotary.h"

namespace sluice::codec {

// A plane among the columns of its group. `means` belong to someone else.
struct TokenPlane {
  ElementType element_type = ElementType::kBf16;  // quantisable
  size_t num_heads = 0;
  size_t head_dim = 0;
  size_t first_column = 0;
  float step = 1;                // the finest
  std::span<const float> means;  // [num_heads * head_dim], in the plane's own unit, un-rotated
};

// Where elements are: element (head, token, dim) is at
//   data + head * head_stride + token * token_stride + dim * element bytes.
// Strides are in bytes; any alignment.
template <typename Byte>
struct PlaneView {
  Byte* data = nullptr;
  size_t head_stride = 0;
  size_t token_stride = 0;
};

// A plane without gaps, [num_heads][num_tokens][head_dim].
template <typename Byte>
PlaneView<Byte> DensePlane(const TokenPlane& plane, size_t num_tokens, Byte* data) {
  const size_t token_stride = plane.head_dim * ElementBytes(plane.element_type);
  return {data, num_tokens * token_stride, token_stride};
}

// Tokens [begin, end) of a chunk.
struct TokenInterval {
  size_t begin = 0;
  size_t end = 0;
};

// A plane's columns as a matrix product leaves them. What is referred to belongs to someone else.
struct ColumnTokens {
  const TokenPlane& plane;
  float ratio = 1;                          // of the level's step to the finest
  const TokenRotation* rotation = nullptr;  // null: not rotated
  size_t num_tokens = 0;                    // of the chunk, and that rotation has
  std::span<const float> x;                 // in column blocks
};

// element = x * (ratio * plane.step) + mean, turned by `rotation`, nearest, ties to even. Beyond
// the type's range: its largest finite element; NaN: its smallest. The first token of `tokens` is
// token 0 of `out`. REQUIRES: x holds the plane's columns for num_tokens tokens, and rotation has
// those tokens and fits in head_dim.
void WriteTokens(const ColumnTokens& columns, TokenInterval tokens, PlaneView<std::byte> out);

struct ErrorSums {
  double sum = 0;     // of absolute differences
  float largest = 0;  // absolute difference
};

// Adds the differences of the elements that WriteTokens would write to those of `original`; `sum`
// is exact but for rounding, which depends on the machine. REQUIRES: as WriteTokens, and the
// elements of `original` are finite.
void CompareTokens(const ColumnTokens& columns, TokenInterval tokens,
                   PlaneView<const std::byte> original, ErrorSums& sums);

// What ReadTokens saw.
struct ReadReport {
  bool finite = true;  // no NaN or Inf among the elements, and none came out
  float largest = 0;   // |y|, if all were finite
};

// y = (element, turned back - mean) / plane.step in bf16, nearest, ties to even. The first
// `skip_tokens` tokens become 0 and do not count for the report. `y` is [num_tokens][num_columns].
// REQUIRES: y has the plane's columns, rotation as for WriteTokens.
ReadReport ReadTokens(const TokenPlane& plane, const TokenRotation* rotation, size_t num_tokens,
                      size_t skip_tokens, PlaneView<const std::byte> in, size_t num_columns,
                      std::span<uint16_t> y);

}  // namespace sluice::codec
