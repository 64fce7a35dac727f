// rANS streams that kernels decode rows from and encode them to. The states are kept as halves of
// 16 bits, in arrays that vectors are loaded from. Byte layout: FORMAT.md, section "rANS".
//
// One thread at a time per object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "codec/bytes.h"
#include "codec/rans.h"

namespace sluice::codec {

// Bytes of the words that 32 symbols may take.
inline constexpr size_t kStepBytes = kLanes * sizeof(uint16_t);
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

}  // namespace sluice::codec
