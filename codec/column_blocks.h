// Where the channels of many tokens lie in memory: token-major floats, in blocks of columns.
//
// Element (token, column) of a [num_tokens][num_columns] table is at
//   ((column / kBlockColumns) * num_tokens + token) * kBlockColumns + column % kBlockColumns.
// A block of 64 columns fills a matrix product's output tile, and a head of 64 dimensions that
// begins at a block is contiguous over tokens. The last block is padded.
#pragma once

#include <cstddef>

namespace sluice::codec {

inline constexpr size_t kBlockColumns = 64;

inline size_t NumBlocks(size_t num_columns) {
  return (num_columns + kBlockColumns - 1) / kBlockColumns;
}

// Elements that such a table takes, padding included.
inline size_t BlockedSize(size_t num_tokens, size_t num_columns) {
  return NumBlocks(num_columns) * kBlockColumns * num_tokens;
}

inline size_t BlockedIndex(size_t num_tokens, size_t token, size_t column) {
  return ((column / kBlockColumns) * num_tokens + token) * kBlockColumns + column % kBlockColumns;
}

}  // namespace sluice::codec
