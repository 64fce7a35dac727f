// The asks of one Fetch stream that are not answered yet, and which of them is served next: base
// before refinement, within a class the earliest deadline, within a deadline the first come.
// Cancelled asks come before all others, so that their answers are not held up.
//
// One thread at a time. Pure: time is passed in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "codec/container.h"
#include "codec/digest.h"

namespace sluice::server {

enum class FetchClass : uint8_t { kBase = 1, kRefinement = 2 };

struct Ask {
  uint32_t id = 0;
  codec::Digest chunk_key = {};
  bool with_header = false;
  uint32_t first_layer = 0;  // bitstream layers [first_layer, first_layer + num_layers)
  uint32_t num_layers = 0;
  FetchClass fetch_class = FetchClass::kBase;
  absl::Time arrived_at;
  absl::Time deadline = absl::InfiniteFuture();
};

struct QueuedAsk {
  Ask ask;
  bool cancelled = false;
  // Both are set by the first frame: the bytes that the answer began with, and where it goes on.
  std::shared_ptr<const codec::ChunkHeader> header;
  uint64_t next_offset = 0;

  bool started() const { return header != nullptr; }
};

class AskQueue {
 public:
  explicit AskQueue(size_t max_asks) : max_asks_(max_asks) {}

  // ResourceExhausted: full. InvalidArgument: the id is in use.
  absl::Status Push(const Ask& ask);
  // No effect if there is no such ask.
  void Cancel(uint32_t ask_id);
  // The ask whose turn it is, or null. Valid until the next change of the queue.
  QueuedAsk* Front();
  // Null if there is no such ask. Valid until the next change of the queue.
  QueuedAsk* Find(uint32_t ask_id);
  void Remove(uint32_t ask_id);
  bool empty() const { return asks_.empty(); }
  size_t size() const { return asks_.size(); }

 private:
  struct Slot {
    QueuedAsk queued;
    uint64_t sequence = 0;
  };
  using OrderKey =
      std::tuple<int, absl::Time, uint64_t, uint32_t>;  // class, deadline, sequence, id
  static OrderKey Order(const Slot& slot);

  const size_t max_asks_;
  uint64_t next_sequence_ = 0;
  absl::flat_hash_map<uint32_t, Slot> asks_;
  std::set<OrderKey> order_;
};

}  // namespace sluice::server
