// The planner: which bytes of which chunk to ask for next, and which chunks to give up.
//
// One planner per load. Pure: (state, event, now) -> actions, each with its reason; no clock, no
// threads, no I/O. One thread at a time. Times are microseconds on the caller's monotonic clock.
//
// The base of every chunk is asked for first, because then no forecast is needed to meet the SLO: a
// load misses it only if the bases alone do not fit. What time is left goes to the refinements that
// remove most loss per byte.
#pragma once

#include <cstdint>
#include <string_view>
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
};

struct LoadSpec {
  TimeUs start_us = 0;
  TimeUs slo_us = 0;      // from start; everything is final by start + slo
  TimeUs reserve_us = 0;  // kept at the end of the SLO for the last decode and the first token
  RecomputeCapability capability = RecomputeCapability::kNone;
  double loss_stop = 0;             // chunks at or below this loss are not refined
  uint64_t memory_bytes = 0;        // of asked steps, over chunks that are still open; 0: no limit
  std::vector<ChunkLadder> chunks;  // chunks without steps are not stored
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

  bool operator==(const Ask&) const = default;
};

// Takes back a chunk's unanswered asks for steps from `first_step` on.
struct Cancel {
  uint32_t chunk = 0;
  uint32_t first_step = 0;

  bool operator==(const Cancel&) const = default;
};

// A chunk that will not be (or stay) loaded.
enum class GiveUpReason { kNotStored, kLate, kFailed, kAfterCut, kComputed, kTooLarge };
struct GiveUp {
  uint32_t chunk = 0;
  GiveUpReason why = GiveUpReason::kLate;

  bool operator==(const GiveUp&) const = default;
};

// To be carried out in this order.
struct Actions {
  std::vector<Cancel> cancels;
  std::vector<GiveUp> give_ups;  // final
  std::vector<uint32_t> closed;  // not refined any more: bytes kept for that can be dropped
  std::vector<uint32_t> loaded;  // final at loaded_step(); closed before or now
  std::vector<Ask> asks;
  bool finished = false;  // the load is over; every chunk is final

  bool operator==(const Actions&) const = default;
};

// What the planner may assume of the link now; see link_estimator.h.
struct LinkView {
  double bytes_per_s = 0;  // pessimistic estimate; 0 means unknown
  TimeUs rtt_us = 0;
  bool stalled = false;
};

class LoadPlanner {
 public:
  static constexpr int kMaxBaseAttempts = 2;      // asks for one chunk's base
  static constexpr size_t kMaxAsksInFlight = 32;  // unanswered asks
  static constexpr size_t kMinAsksInFlight = 2;   // allowed whatever the window, so no idle link
  // Chunks that have arrived and wait for their decode; with more, refinements would only queue.
  static constexpr size_t kMaxUndecoded = 8;
  static constexpr TimeUs kWindowSlackUs = 20000;                   // beyond the round trip
  static constexpr uint64_t kProbeWindowBytes = uint64_t{4} << 20;  // throughput unknown
  static constexpr uint64_t kMaxWindowBytes = uint64_t{64} << 20;

  explicit LoadPlanner(LoadSpec spec);

  // Events. Each may come in any order and is ignored once the chunk is final.
  // Payload of the ask that began at `first_step` arrived; of cancelled asks it does not count.
  void OnBytes(uint32_t chunk, uint32_t first_step, uint64_t bytes);
  // Steps up to `step` are checked, decoded and written.
  void OnStepLoaded(uint32_t chunk, uint32_t step);
  // Damaged, missing or dropped. Asking again can help unless `may_retry` is false; only bases are.
  void OnStepFailed(uint32_t chunk, uint32_t step, bool may_retry);
  // The engine has computed chunks [0, num_chunks) by itself.
  void OnComputed(uint32_t num_chunks);
  // Nothing more will arrive; or, when `reconnecting`, nothing until OnLinkRestored.
  void OnLinkLost(bool reconnecting);
  void OnLinkRestored();

  // What to do now. Call after events and every 10 ms.
  Actions Decide(const LinkView& link, TimeUs now_us);

  // Step that is loaded, -1 for none.
  int loaded_step(uint32_t chunk) const;
  bool finished() const { return finished_; }
  // Bytes asked for that have not arrived.
  uint64_t unanswered_bytes() const;
  // Most unanswered bytes that the view allows (besides kMinAsksInFlight).
  static uint64_t WindowBytes(const LinkView& link);

 private:
  enum class State { kOpen, kClosed, kLoaded, kGivenUp };
  enum class LinkState { kUp, kReconnecting, kLost };

  struct Chunk {
    ChunkLadder ladder;
    State state = State::kOpen;
    int loaded = -1;  // steps 0..loaded are written
    int asked = -1;   // steps 0..asked are asked for, have arrived or are written
    int top = -1;     // last step worth asking for
    int base_attempts = 0;

    bool final() const { return state == State::kLoaded || state == State::kGivenUp; }
    // Bytes of steps [first, last].
    uint64_t Bytes(int first, int last) const;
  };

  // An ask of which bytes are missing.
  struct Flight {
    uint32_t chunk = 0;
    int first_step = 0;
    int last_step = 0;
    uint64_t missing_bytes = 0;
  };

  // Steps that could be asked for next to refine a chunk.
  struct Refinement {
    int chunk = -1;
    int last_step = 0;
    double gain = 0;  // loss removed per byte
  };

  void DropFlights(uint32_t chunk, int first_step);
  void DropRefinements();
  void GiveUpChunk(uint32_t chunk, GiveUpReason why);
  void Close(uint32_t chunk);

  void ExpireAt(TimeUs now_us);
  void CutSuffix();
  void CloseSettled(TimeUs now_us);
  void FinishChunks();

  void AskBases(const LinkView& link);
  void AskRefinements(const LinkView& link);
  bool WindowAllows(const LinkView& link, uint64_t bytes) const;
  bool MakeRoom(uint64_t bytes, int spare_chunk);
  uint64_t HeldBytes() const;
  int NextBase() const;
  Refinement BestStep(uint32_t chunk) const;
  Refinement NextRefinement() const;
  bool DecodePending() const;
  size_t CountUndecoded() const;
  void Issue(uint32_t chunk, int last_step, AskClass ask_class, std::string_view reason);

  LoadSpec spec_;
  TimeUs end_us_ = 0;       // start + slo
  TimeUs last_ask_us_ = 0;  // nothing is asked from here on
  std::vector<Chunk> chunks_;
  std::vector<Flight> flights_;  // oldest first
  LinkState link_state_ = LinkState::kUp;
  bool finished_ = false;
  Actions next_;  // what events and Decide have gathered
};

}  // namespace sluice::adapt
