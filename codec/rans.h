// The rANS entropy coder: 32 interleaved lanes over one stream of 16-bit words. Byte layout:
// FORMAT.md, section "rANS".
//
// Symbol i of a stream belongs to lane i % kLanes; a step is kLanes symbols in lane order. A symbol
// is an interval [start, start + freq) of the 2^kProbBits slots; which interval is whose is the
// caller's business. The encoder works backwards from the last symbol, so the decoder reads words
// forwards: within a step, each lane whose state fell below kStateLow takes the next word, in lane
// order. That order lets a SIMD or GPU decoder do a step for all lanes at once.
//
// One thread at a time per object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "codec/bytes.h"

namespace sluice::codec {

inline constexpr size_t kLanes = 32;
inline constexpr int kProbBits = 12;
inline constexpr uint32_t kProbScale = 1u << kProbBits;
inline constexpr uint32_t kStateLow = 1u << 16;  // states are in [kStateLow, 2^32)
inline constexpr size_t kRansStateBytes = kLanes * sizeof(uint32_t);

// Encodes one symbol; emits at most one word. REQUIRES: freq in 1 .. kProbScale.
inline void RansPut(uint32_t& state, uint32_t start, uint32_t freq, std::vector<uint16_t>& words) {
  if (state >= uint64_t{freq} << (32 - kProbBits)) {
    words.push_back(static_cast<uint16_t>(state));
    state >>= 16;
  }
  state = ((state / freq) << kProbBits) + state % freq + start;
}

// The slot that the state points at; the caller finds the symbol whose interval holds it.
constexpr uint32_t RansSlot(uint32_t state) { return state & (kProbScale - 1); }

// The state after that symbol, before renormalisation. REQUIRES: start <= slot < start + freq.
constexpr uint32_t RansAdvance(uint32_t state, uint32_t start, uint32_t freq, uint32_t slot) {
  return freq * (state >> kProbBits) + slot - start;
}

// Collects the symbols of one stream, last symbol first.
class LaneEncoder {
 public:
  LaneEncoder() { states_.fill(kStateLow); }

  void Put(size_t lane, uint32_t start, uint32_t freq) {
    RansPut(states_[lane], start, freq, words_);
  }

  // Bytes that Finish will write.
  size_t size() const { return kRansStateBytes + words_.size() * sizeof(uint16_t); }

  // Appends the stream: the states, then the words in the decoder's order. Call once.
  void Finish(ByteWriter& writer) const {
    for (uint32_t state : states_) writer.Write<uint32_t>(state);
    for (size_t i = words_.size(); i > 0; --i) writer.Write<uint16_t>(words_[i - 1]);
  }

 private:
  std::array<uint32_t, kLanes> states_;
  std::vector<uint16_t> words_;
};

// Reads one stream, first symbol first. Copy it into a local variable around a hot loop: the
// compiler can then keep its fields in registers.
class LaneDecoder {
 public:
  // `stream` is one whole stream, states and words; it must outlive the decoder.
  absl::Status Init(std::span<const std::byte> stream) {
    if (stream.size() < kRansStateBytes || stream.size() % sizeof(uint16_t) != 0) {
      return absl::DataLossError("rANS stream has an impossible length");
    }
    std::memcpy(states_.data(), stream.data(), kRansStateBytes);
    for (uint32_t state : states_) {
      if (state < kStateLow) return absl::DataLossError("rANS state is too small");
    }
    next_ = stream.data() + kRansStateBytes;
    end_ = stream.data() + stream.size();
    missing_words_ = false;
    return absl::OkStatus();
  }

  uint32_t Slot(size_t lane) const { return RansSlot(states_[lane]); }

  // REQUIRES: start <= Slot(lane) < start + freq. Past the last word zeros are read, and Finish
  // will fail.
  void Advance(size_t lane, uint32_t start, uint32_t freq) {
    uint32_t state = RansAdvance(states_[lane], start, freq, RansSlot(states_[lane]));
    if (state < kStateLow) {
      uint16_t word = 0;
      if (next_ != end_) {
        std::memcpy(&word, next_, sizeof(word));
        next_ += sizeof(word);
      } else {
        missing_words_ = true;
      }
      state = state << 16 | word;
    }
    states_[lane] = state;
  }

  // True if a whole step cannot run out of words: AdvanceUnchecked may be used for kLanes symbols,
  // and is free of branches.
  bool StepIsSafe() const { return static_cast<size_t>(end_ - next_) >= kLanes * sizeof(uint16_t); }
  void AdvanceUnchecked(size_t lane, uint32_t start, uint32_t freq) {
    const uint32_t state = RansAdvance(states_[lane], start, freq, RansSlot(states_[lane]));
    uint16_t word;
    std::memcpy(&word, next_, sizeof(word));
    // A mask, for compilers make a hard to predict branch of a conditional.
    const uint32_t low = -static_cast<uint32_t>(state < kStateLow);
    states_[lane] = state << (low & 16) | (word & low);
    next_ += low & sizeof(word);
  }

  // After the last symbol: every word was used and every lane is back where the encoder began,
  // which a damaged stream hardly ever is.
  absl::Status Finish() const {
    if (missing_words_) return absl::DataLossError("rANS stream ends too early");
    if (next_ != end_) return absl::DataLossError("rANS stream has words left over");
    for (uint32_t state : states_) {
      if (state != kStateLow)
        return absl::DataLossError("rANS stream does not end in its first state");
    }
    return absl::OkStatus();
  }

 private:
  std::array<uint32_t, kLanes> states_ = {};
  const std::byte* next_ = nullptr;
  const std::byte* end_ = nullptr;
  bool missing_words_ = false;
};

}  // namespace sluice::codec
