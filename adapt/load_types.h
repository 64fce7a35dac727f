// What a load is, what happens to it, and what the planner wants done: the values that pass between
// the planner and whoever drives it.
//
// Plain values. Times are microseconds on the caller's monotonic clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace sluice::adapt {

using TimeUs = int64_t;

// Which part of a context the engine can compute while the rest is loaded.
enum class RecomputeCapability { kNone, kSuffix, kBidirectional, kAny };

// The steps by which a chunk's quality rises. Step s needs the steps before it.
struct ChunkLadder {
  std::vector<uint64_t> step_bytes;  // bytes that step s adds; the first includes the header
  std::vector<double> step_loss;     // quality loss once steps 0..s are there; falls
  uint32_t num_tokens = 0;           // weight of the loss

  bool operator==(const ChunkLadder&) const = default;
};

struct LoadSpec {
  TimeUs start_us = 0;
  TimeUs slo_us = 0;      // from start
  TimeUs reserve_us = 0;  // kept at the end of the SLO for the last decode and the first token
  // From start: chunks without a base may still be loaded until then; at least the SLO.
  TimeUs limit_us = 0;
  RecomputeCapability capability = RecomputeCapability::kNone;
  double loss_stop = 0;       // chunks at or below this loss are good: not refined, not computed
  uint64_t memory_bytes = 0;  // of asked steps, over chunks that are still open; 0: no limit
  double weight = 1;          // share of the link in refinement, against other loads
  // In which one chunk after the other is decoded at each step; empty: not known, and nothing.
  std::vector<TimeUs> decode_us;
  std::vector<ChunkLadder> chunks;  // chunks without steps are not stored
  // Time in which the engine computes each chunk after all before it, at scale 1 (PrefillCost).
  // Empty: not known, and no decision is made that needs it.
  std::vector<TimeUs> compute_us;

  bool operator==(const LoadSpec&) const = default;
};

// What the planner may assume of the link now; see link_estimator.h.
struct LinkView {
  double bytes_per_s = 0;       // pessimistic estimate; 0 means unknown
  double mean_bytes_per_s = 0;  // the estimate as it is
  TimeUs rtt_us = 0;
  bool stalled = false;
  TimeUs idle_us = 0;  // for which nothing has been asked for, so the estimate is as old

  bool operator==(const LinkView&) const = default;
};

// Payload of the ask that began at `first_step` arrived; of cancelled asks it does not count.
struct BytesArrived {
  uint32_t chunk = 0;
  uint32_t first_step = 0;
  uint64_t bytes = 0;

  bool operator==(const BytesArrived&) const = default;
};
// The ask that began at `first_step` is answered by another load's transfer, or no longer is: what
// is shared takes no room on the link.
struct AskShared {
  uint32_t chunk = 0;
  uint32_t first_step = 0;
  bool shared = true;

  bool operator==(const AskShared&) const = default;
};
// Steps up to `step` are checked, decoded and written.
struct StepLoaded {
  uint32_t chunk = 0;
  uint32_t step = 0;

  bool operator==(const StepLoaded&) const = default;
};
// Damaged, missing or dropped. Asking again can help unless `may_retry` is false; only bases are.
struct StepFailed {
  uint32_t chunk = 0;
  uint32_t step = 0;
  bool may_retry = false;

  bool operator==(const StepFailed&) const = default;
};
// The engine has computed chunks [0, num_chunks) by itself.
struct ChunksComputed {
  uint32_t num_chunks = 0;

  bool operator==(const ChunksComputed&) const = default;
};
// Nothing more will arrive; or, when `reconnecting`, nothing until LinkRestored.
struct LinkLost {
  bool reconnecting = false;

  bool operator==(const LinkLost&) const = default;
};
struct LinkRestored {
  bool operator==(const LinkRestored&) const = default;
};
// How an engine computes now, beside what was forecast.
struct ComputePace {
  double scale = 1;       // measured over forecast computing time
  double high_scale = 0;  // which it hardly exceeds; at least `scale`, whatever is here

  bool operator==(const ComputePace&) const = default;
};
// Time has passed: at least every 10 ms, and after other events.
struct Tick {
  LinkView link;
  ComputePace pace;

  bool operator==(const Tick&) const = default;
};
// The link has room for this load's next base, or for its best refinement.
struct GrantBase {
  bool operator==(const GrantBase&) const = default;
};
struct GrantRefinement {
  bool operator==(const GrantRefinement&) const = default;
};
// Its bases cannot come in time and would only delay other loads, so it gets what they leave; or,
// as the link is judged now, they can.
struct Demoted {
  bool demoted = true;

  bool operator==(const Demoted&) const = default;
};

using Event = std::variant<BytesArrived, AskShared, StepLoaded, StepFailed, ChunksComputed,
                           LinkLost, LinkRestored, Tick, GrantBase, GrantRefinement, Demoted>;

enum class AskClass { kBase, kRefinement };

// Asks for steps [first_step, last_step] of a chunk.
struct Ask {
  uint32_t chunk = 0;
  uint32_t first_step = 0;
  uint32_t last_step = 0;
  AskClass ask_class = AskClass::kBase;
  uint64_t bytes = 0;
  TimeUs deadline_us = 0;
  std::string_view reason;  // static text, as all reasons

  bool operator==(const Ask&) const = default;
};

// Takes back a chunk's unanswered asks for steps from `first_step` on.
struct Cancel {
  uint32_t chunk = 0;
  uint32_t first_step = 0;
  std::string_view reason;

  bool operator==(const Cancel&) const = default;
};

// A chunk that will not be (or stay) loaded.
enum class GiveUpReason {
  kNotStored,
  kLate,
  kFailed,
  kAfterCut,  // behind the cut of an engine that computes a suffix
  kComputed,  // the engine has it
  kTooLarge,
  kComputeFaster,  // computing is faster than loading, or gives more quality in the time left
};
struct GiveUp {
  uint32_t chunk = 0;
  GiveUpReason why = GiveUpReason::kLate;
  std::string_view reason;

  bool operator==(const GiveUp&) const = default;
};

// The chunk is not refined any more: bytes kept for that can be dropped.
struct Close {
  uint32_t chunk = 0;
  std::string_view reason;

  bool operator==(const Close&) const = default;
};

// The engine is to compute the chunk now, beside the load; all chunks before it are computed.
struct Compute {
  uint32_t chunk = 0;
  std::string_view reason;

  bool operator==(const Compute&) const = default;
};

// To be carried out in this order.
struct Actions {
  std::vector<Cancel> cancels;
  std::vector<GiveUp> give_ups;  // final
  std::vector<Close> closes;
  std::vector<uint32_t> loaded;  // final at loaded_step(); closed before or now
  std::vector<Ask> asks;
  std::optional<Compute> compute;
  bool finished = false;  // the load is over; every chunk is final

  bool empty() const {
    return cancels.empty() && give_ups.empty() && closes.empty() && loaded.empty() &&
           asks.empty() && !compute.has_value() && !finished;
  }
  bool operator==(const Actions&) const = default;
};

}  // namespace sluice::adapt
