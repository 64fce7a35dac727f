// The inner loops of row coding, for every set of vector instructions: what they work on, and the
// choice among them. All of them give the same values, bytes and counts.
//
// A stream or sink is for one thread at a time; the kernels are pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "codec/bytes.h"
#include "codec/class_tables.h"
#include "codec/rans.h"

namespace sluice::codec {

// Bytes of the words that 32 symbols may take.
inline constexpr size_t kStepBytes = kLanes * sizeof(uint16_t);
// Rows that a kernel decodes at a time, of as many streams: one waits for its states while others
// work.
inline constexpr size_t kRowsAtOnce = 4;

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

// A rANS stream that rows are decoded from. Kernels read whole steps ahead; so the last words are
// copied to where zeros follow them.
class RowStream {
 public:
  RowStream() = default;
  RowStream(const RowStream&) = delete;
  RowStream& operator=(const RowStream&) = delete;

  // `stream` is one whole stream, states and words; it must outlive this.
  absl::Status Init(std::span<const std::byte> stream);
  // After the last row: as LaneDecoder's.
  absl::Status Finish() const;

  // For kernels. A step needs `next` <= `limit`: Refill sees to it.
  void Refill();
  alignas(64) std::array<uint16_t, kLanes> low;  // halves of the states
  alignas(64) std::array<uint16_t, kLanes> high;
  const std::byte* next = nullptr;
  const std::byte* limit = nullptr;

 private:
  const std::byte* end_ = nullptr;
  bool in_tail_ = false;
  bool missing_words_ = false;
  std::array<std::byte, 2 * kStepBytes> tail_;
};

// A rANS stream that rows are encoded to, the last row first.
class RowSink {
 public:
  explicit RowSink(size_t max_symbols);
  RowSink(const RowSink&) = delete;
  RowSink& operator=(const RowSink&) = delete;

  // Begins a stream.
  void Reset();
  // Bytes that Finish will write.
  size_t size() const { return kRansStateBytes + words().size_bytes(); }
  // Appends the stream: the states, then the words in the decoder's order.
  void Finish(ByteWriter& writer) const;

  // For kernels, which put words before `front`. There is room for a step more than all symbols
  // need, which they may overwrite.
  alignas(64) std::array<uint16_t, kLanes> low;
  alignas(64) std::array<uint16_t, kLanes> high;
  uint16_t* front = nullptr;

 private:
  std::span<const uint16_t> words() const { return {front, end_}; }

  std::unique_ptr<uint16_t[]> buffer_;
  uint16_t* end_ = nullptr;
};

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
