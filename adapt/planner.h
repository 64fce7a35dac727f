// The planner: which bytes of which chunk to ask for next, and which chunks to give up.
//
// One planner per load. Pure: (state, event, now) -> actions, each with its reason; no clock, no threads,
// no I/O. One thread at a time. Times are microseconds on the caller's monotonic clock.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice::adapt {

using TimeUs = int64_t;

// Which part of a context the engine can compute while the rest is loaded.
enum class RecomputeCapability { kNone, kSuffix, kBidirectional, kAny };

// The steps by which a chunk's quality rises. Step s needs the steps before it.
struct ChunkLadder {
  std::vector<uint64_t> step_bytes;  // bytes that step s adds; the first includes the container's header
  std::vector<double> step_loss;     // quality loss once steps 0..s are there; falls
  uint32_t num_tokens = 0;           // weight of the loss
};

struct LoadSpec {
  TimeUs start_us = 0;
  TimeUs slo_us = 0;      // from start; everything must be final by start + slo
  TimeUs reserve_us = 0;  // kept at the end of the SLO for the last decode and the first token
  RecomputeCapability capability = RecomputeCapability::kNone;
  double loss_stop = 0;                // chunks at or below this loss are not refined
  std::vector<ChunkLadder> chunks;     // chunks without steps are not stored
};

enum class AskClass { kBase, kRefinement };

// Asks for steps [first_step, last_step] of a chunk.
struct Ask {
  uint32_t chunk = 0;
  uint32_t first_step = 0;
  uint32_t last_step = 0;
  AskClass ask_class = AskClass::kBase;
  uint64_t bytes = 0;
  TimeUs deadline_us = 0;
  std::string_view reason;  // static text
};

// A chunk that will not be (or stay) loaded.
enum class GiveUpReason { kNotStored, kLate, kFailed, kAfterCut, kComputed, kHopeless };
struct GiveUp {
  uint32_t chunk = 0;
  GiveUpReason why = GiveUpReason::kLate;
};

struct Actions {
  std::vector<Ask> asks;
  std::vector<uint32_t> cancels;  // chunks whose unanswered asks should be taken back
  std::vector<GiveUp> give_ups;   // final
  bool finished = false;          // the load is over; every chunk is final
};

// What the planner may assume of the link now; see adapt/link_estimator.h.
struct LinkView {
  double bytes_per_s = 0;  // pessimistic estimate; 0 means unknown
  TimeUs rtt_us = 0;
  bool stalled = false;
};

class LoadPlanner {
 public:
  explicit LoadPlanner(LoadSpec spec);

  // Events. Each may come in any order and is ignored once the chunk is final.
  void OnBytes(uint32_t chunk, uint64_t bytes, TimeUs now_us);         // payload arrived
  void OnStepLoaded(uint32_t chunk, uint32_t step, TimeUs now_us);     // checked, decoded and written
  void OnStepFailed(uint32_t chunk, uint32_t step, TimeUs now_us);     // damaged, missing or dropped
  void OnComputed(uint32_t num_chunks, TimeUs now_us);                 // engine has chunks [0, num_chunks)
  void OnLinkLost(TimeUs now_us);                                      // nothing more will arrive

  // What to do now. Call after events and every 10 ms.
  Actions Decide(const LinkView& link, TimeUs now_us);

  // Step that is loaded, -1 for none.
  int loaded_step(uint32_t chunk) const;
  bool finished() const;

 private:
  struct Chunk;
  // (the builder's)
};

}  // namespace sluice::adapt
