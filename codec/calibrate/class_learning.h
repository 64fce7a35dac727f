// Symbol tables learnt from the rows of training chunks.
//
// Pure functions, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/class_tables.h"

namespace sluice::codec {

// Symbols of a row in a layer: of base values, or of refinements as [context][symbol].
inline constexpr size_t kBaseCounts = kBaseSymbols;
inline constexpr size_t kRefinementCounts = size_t{kContexts} * kRefinementSymbols;

// How often each symbol comes in each of many rows, all of one layer.
struct RowHistograms {
  explicit RowHistograms(bool base) : base(base), width(base ? kBaseCounts : kRefinementCounts) {}

  bool base;
  size_t width;
  std::vector<uint16_t> counts;  // [row][width]

  size_t rows() const { return counts.size() / width; }
  std::span<const uint16_t> row(size_t i) const {
    return std::span(counts).subspan(i * width, width);
  }
  // No symbol but zeros: such rows are not coded, so no table is learnt from them.
  bool IsZero(size_t i) const;
};

// Appends the histogram of a row's values at the level that the layer completes.
void AppendHistogram(std::span<const int16_t> values, RowHistograms& histograms);

struct LearntTables {
  ClassTables tables;
  std::vector<uint8_t> classes;  // [row]: the cheapest; 0 for zero rows
};

// At most `max_classes` tables, by falling share of zeros. They have no centroid shifts: a smaller
// squared error by them is a larger divergence.
// REQUIRES: 1 <= max_classes <= kMaxClasses.
LearntTables LearnTables(const RowHistograms& histograms, size_t max_classes);

}  // namespace sluice::codec
