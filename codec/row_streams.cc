#include "codec/row_streams.h"

#include <algorithm>
#include <cstring>

namespace sluice::codec {

absl::Status RowStream::Init(std::span<const std::byte> stream) {
  if (stream.size() < kRansStateBytes || stream.size() % sizeof(uint16_t) != 0) {
    return absl::DataLossError("rANS stream has an impossible length");
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint32_t state = 0;
    std::memcpy(&state, stream.data() + lane * sizeof(state), sizeof(state));
    if (state < kStateLow) return absl::DataLossError("rANS state is too small");
    low[lane] = static_cast<uint16_t>(state);
    high[lane] = static_cast<uint16_t>(state >> 16);
  }
  next = stream.data() + kRansStateBytes;
  end_ = stream.data() + stream.size();
  in_tail_ = false;
  missing_words_ = false;
  if (static_cast<size_t>(end_ - next) < kStepBytes) {
    Refill();
  } else {
    limit = end_ - kStepBytes;
  }
  return absl::OkStatus();
}

void RowStream::Refill() {
  if (in_tail_) {  // zeros were taken for words
    missing_words_ = true;
    next = end_;
    return;
  }
  const size_t rest = end_ - next;
  std::copy(next, end_, tail_.begin());
  std::fill(tail_.begin() + rest, tail_.end(), std::byte{0});
  in_tail_ = true;
  next = tail_.data();
  end_ = next + rest;
  limit = end_;
}

absl::Status RowStream::Finish() const {
  if (missing_words_ || next > end_) return absl::DataLossError("rANS stream ends too early");
  if (next != end_) return absl::DataLossError("rANS stream has words left over");
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (low[lane] != 0 || high[lane] != 1) {
      return absl::DataLossError("rANS stream does not end in its first state");
    }
  }
  return absl::OkStatus();
}

RowSink::RowSink(size_t max_symbols)
    : buffer_(std::make_unique_for_overwrite<uint16_t[]>(kLanes + max_symbols)),
      end_(buffer_.get() + kLanes + max_symbols) {
  Reset();
}

void RowSink::Reset() {
  low.fill(static_cast<uint16_t>(kStateLow));
  high.fill(kStateLow >> 16);
  front = end_;
}

void RowSink::Finish(ByteWriter& writer) const {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    writer.Write<uint32_t>(uint32_t{high[lane]} << 16 | low[lane]);
  }
  writer.WriteBytes(std::as_bytes(words()));
}

}  // namespace sluice::codec
