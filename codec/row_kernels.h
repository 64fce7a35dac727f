// The inner loops of row coding, for every set of vector instructions. All give the same values,
// bytes and counts.
//
// Pure functions, thread-safe; a stream or sink is for one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/class_tables.h"
#include "codec/row_streams.h"
#include "codec/row_tables.h"

namespace sluice::codec {

// Rows that a kernel decodes at a time, of as many streams: one waits for its states while others
// work.
inline constexpr size_t kRowsAtOnce = 4;

template <typename Lookup>
struct DecodeRow {
  RowStream* stream;
  const Lookup* table;
  int16_t* values;
};

template <typename Lookup>
struct EncodeRow {
  RowSink* sink;
  const Lookup* table;
  const int16_t* values;
};

using BaseCounts = std::array<uint32_t, kBaseSymbols>;
using RefinementCounts = std::array<uint32_t, kContexts * kRefinementSymbols>;

struct RowKernels {
  const char* name;
  // Decode a row from each of at most kRowsAtOnce streams. Refinements are added to three times
  // the `values`.
  void (*decode_base)(std::span<const DecodeRow<BaseLookup>> rows, size_t num_tokens);
  void (*decode_refinement)(std::span<const DecodeRow<RefinementLookup>> rows, size_t num_tokens);
  void (*encode_base)(const EncodeRow<BaseLookup>& row, size_t num_tokens);
  void (*encode_refinement)(const EncodeRow<RefinementLookup>& row, size_t num_tokens);
  // How often a row has each symbol; index context * kRefinementSymbols + symbol.
  void (*count_base)(std::span<const int16_t> row, BaseCounts& counts);
  void (*count_refinement)(std::span<const int16_t> row, RefinementCounts& counts);
  // The first index from `begin` on where |value| > kBaseZero, which escapes are and what
  // decode_base leaves for them; else the number of values.
  size_t (*find_escape)(std::span<const int16_t> values, size_t begin);
  // The values at the next coarser level.
  void (*parents)(std::span<const int16_t> values, int16_t* parents);
  // The column where the symbols are cheapest, the first of equal ones: the sum over symbols of
  // count times price, added to `extra`, which has a number for each column. REQUIRES: some count
  // is not 0.
  uint32_t (*cheapest_class)(std::span<const uint32_t> counts, const PriceTable& prices,
                             const float* extra);
};

// Plain C++: what all others must equal.
const RowKernels& PlainRowKernels();
// The fastest that the processor can run.
const RowKernels& BestRowKernels();

}  // namespace sluice::codec
