// Tables of classes in the form that kernels look them up.
//
// Immutable, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/class_tables.h"

namespace sluice::codec {

// Eight numbers, which one shuffle of bytes looks up.
using Eight = std::array<uint16_t, 8>;

// A base table as a binary search. Entry k is about the symbols 2k and 2k + 1.
struct alignas(16) BaseLookup {
  explicit BaseLookup(const BaseTable& table);

  Eight first;   // start of symbol 8
  Eight second;  // of 4 or 12, in the half of 2k
  Eight third;   // of 2, 6, 10 or 14, in the quarter of 2k
  Eight even;    // of 2k
  Eight odd;     // of 2k + 1
  Eight end;     // end of 2k + 1
};

// A refinement table: where symbols 1 and 2 start, by context.
struct alignas(16) RefinementLookup {
  explicit RefinementLookup(const RefinementTable& table);

  Eight one;
  Eight two;
};

// What a symbol costs in each class, in bits: a row per symbol, padded to whole vectors.
class PriceTable {
 public:
  static constexpr size_t kColumns = 16;     // of the widest vector
  static constexpr float kNever = 0x1p100f;  // of columns that pad

  // As ClassTables::base_bits.
  explicit PriceTable(std::span<const std::vector<float>> bits);

  size_t num_columns() const { return num_columns_; }
  const float* row(size_t symbol) const { return prices_.data() + symbol * num_columns_; }

 private:
  size_t num_columns_;
  std::vector<float> prices_;
};

}  // namespace sluice::codec
