// The planner: which bytes of which chunk to ask for next, which chunks to leave to the engine.
//
// One planner per load, driven by its link's scheduler (link_scheduler.h). Pure: (state, event,
// now) -> actions, each with its reason; no clock, no threads, no I/O. One thread at a time.
//
// The base of every chunk is asked for first, because then no forecast is needed to meet the SLO:
// a load misses it only if the bases alone do not fit. What time is left goes to the refinements
// that remove most loss per byte. Beside that the engine computes:
// - bidirectional: from the front, one chunk after the other, while bases come from the back; the
//   two meet. Always when the link alone would not make every chunk good in time.
// - suffix: everything behind one cut, after the load. Bases come from the front; the cut moves
//   left when the link is late, at the last moment at which the engine is not, or for more quality.
//   What the engine has to keep is judged by the time that it hardly exceeds.
// - any: as suffix, but what is loaded may have gaps. Bases come from the back, where computing is
//   dear; what is missing at the last moment is computed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "adapt/load_types.h"

namespace sluice::adapt {

class LoadPlanner {
 public:
  static constexpr int kMaxBaseAttempts = 2;      // asks for one chunk's base
  static constexpr size_t kMaxAsksInFlight = 32;  // unanswered asks of one load
  // Chunks that have arrived and wait for their decode; with more, refinements would only queue.
  static constexpr size_t kMaxUndecoded = 8;
  static constexpr TimeUs kTickUs = 10000;  // longest time between ticks
  // The engine computes when the link would not bring what is needed within this part of the time
  // left, and stops when it would within the smaller part.
  static constexpr double kComputeOn = 0.9;
  static constexpr double kComputeOff = 0.7;
  // No estimate keeps the engine from computing once this part of the SLO is over and a chunk is
  // not covered.
  static constexpr double kComputeBackstop = 0.1;
  // A load is declined only by an estimate younger than this. Loads that are declined measure
  // nothing: without a limit a link that was slow once would never be tried again.
  static constexpr TimeUs kMaxEstimateAgeUs = 1000000;
  // A cut that is only for the sake of quality must remove this part of the loss.
  static constexpr double kCutGain = 0.05;

  explicit LoadPlanner(LoadSpec spec);

  // Any event may come at any time; what concerns final chunks is ignored.
  Actions Apply(const Event& event, TimeUs now_us);

  // When the next tick is due at the latest, after one now.
  TimeUs WakeUs() const;

  // An ask that the load would make now.
  struct Wish {
    uint32_t chunk = 0;
    int last_step = 0;
    uint64_t bytes = 0;
  };
  std::optional<Wish> BaseWish() const;
  std::optional<Wish> RefinementWish() const;

  // Step that is loaded, -1 for none.
  int loaded_step(uint32_t chunk) const;
  bool finished() const { return finished_; }
  bool demoted() const { return demoted_; }
  double weight() const { return spec_.weight; }
  TimeUs deadline_us() const { return last_ask_us_; }
  uint64_t unanswered_bytes() const { return unanswered_bytes_; }
  size_t asks_in_flight() const { return flights_.size(); }
  // Bytes of bases that have not arrived, of chunks that are not final.
  uint64_t MissingBaseBytes() const;
  // Steps asked for per chunk beyond the base, by tokens: how far refinement has come.
  double RefinementLevel() const;

 private:
  enum class State { kOpen, kClosed, kLoaded, kGivenUp };
  enum class LinkState { kUp, kReconnecting, kLost };

  struct Chunk {
    ChunkLadder ladder;
    State state = State::kOpen;
    int loaded = -1;  // steps 0..loaded are written
    int asked = -1;   // steps 0..asked are asked for, have arrived or are written
    int top = -1;     // last step worth asking for
    int good = -1;    // first step that needs neither refinement nor computing
    int base_attempts = 0;
    bool computed = false;

    bool final() const { return state == State::kLoaded || state == State::kGivenUp; }
    bool covered() const { return computed || loaded >= 0; }
    // Bytes of steps [first, last].
    uint64_t Bytes(int first, int last) const;
  };

  // An ask of which bytes are missing.
  struct Flight {
    uint32_t chunk = 0;
    int first_step = 0;
    int last_step = 0;
    uint64_t missing_bytes = 0;
    bool shared = false;  // comes by another load's transfer
  };

  void On(const BytesArrived& event);
  void On(const AskShared& event);
  void On(const StepLoaded& event);
  void On(const StepFailed& event);
  void On(const ChunksComputed& event);
  void On(const LinkLost& event);
  void On(const LinkRestored& event);
  void On(const Tick& event);
  void On(const GrantBase& event);
  void On(const GrantRefinement& event);
  void On(const Demoted& event);

  void DropFlights(uint32_t chunk, int first_step, std::string_view reason);
  void DropRefinements(std::string_view reason);
  // Of an open chunk.
  void GiveUpChunk(uint32_t chunk, GiveUpReason why, std::string_view reason);
  void CloseChunk(uint32_t chunk, std::string_view reason);

  void Expire();
  void CutSuffix();
  void CloseSettled();
  void FinishChunks();

  // planner_asks.cc: what to ask for.
  bool MayAsk() const;
  int NextBase() const;
  std::optional<Wish> BestSteps(uint32_t chunk, double& gain) const;
  bool MakeRoom(uint64_t bytes, int spare_chunk);
  uint64_t HeldBytes() const;
  bool DecodePending() const;
  size_t CountUndecoded() const;
  bool DecodedInTime(const Wish& wish, size_t pending) const;
  void Issue(const Wish& wish, AskClass ask_class, std::string_view reason);

  // planner_compute.cc: what the engine computes.
  bool computes_beside() const;  // while the load runs
  bool computes_after() const;
  bool cost_known() const;
  bool left_to_engine(uint32_t chunk) const {  // for after the load
    return chunks_[chunk].state == State::kGivenUp && !chunks_[chunk].computed;
  }
  double ToldComputeUs(uint32_t chunk) const;  // by the spec; 0: it tells nothing
  TimeUs ComputeUs(uint32_t chunk) const;      // now, one chunk
  double LoadUs(double bytes, double bytes_per_s, size_t num_chunks, int step) const;
  TimeUs ComputeAfter() const;     // of what is left to the engine for after the load
  TimeUs refine_until_us() const;  // later bytes would be late
  bool Covered() const;
  bool Computing() const;
  bool OverBackstop() const;
  bool WantCompute() const;
  void DecideCompute();
  void DecideDecline();
  void DecideCut();
  void Cut(const std::vector<uint32_t>& order, size_t first, std::string_view reason);
  std::vector<uint32_t> CutOrder() const;
  size_t BestCut(const std::vector<uint32_t>& order) const;

  LoadSpec spec_;
  TimeUs end_us_ = 0;       // start + limit
  TimeUs last_ask_us_ = 0;  // start + slo - reserve
  std::vector<Chunk> chunks_;
  std::vector<Flight> flights_;    // oldest first
  uint64_t unanswered_bytes_ = 0;  // of flights that are not shared
  LinkState link_state_ = LinkState::kUp;
  LinkView link_;
  ComputePace pace_{1, 1};
  TimeUs now_us_ = 0;
  bool demoted_ = false;
  bool want_compute_ = false;
  uint32_t next_compute_ = 0;       // chunks before it are computed
  TimeUs computing_since_us_ = -1;  // next_compute_ is being computed
  double left_compute_us_ = 0;      // sum of ToldComputeUs over what is left to the engine
  bool finished_ = false;
  Actions next_;  // what the event at hand asks for
};

}  // namespace sluice::adapt
