#include "adapt/planner.h"

#include <algorithm>
#include <utility>

namespace sluice::adapt {

uint64_t LoadPlanner::Chunk::Bytes(int first, int last) const {
  uint64_t bytes = 0;
  for (int step = first; step <= last; ++step) bytes += ladder.step_bytes[step];
  return bytes;
}

LoadPlanner::LoadPlanner(LoadSpec spec) : spec_(std::move(spec)) {
  end_us_ = spec_.start_us + std::max<TimeUs>(spec_.slo_us, 0);
  last_ask_us_ = end_us_ - std::max<TimeUs>(spec_.reserve_us, 0);
  chunks_.resize(spec_.chunks.size());
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    chunk.ladder = std::move(spec_.chunks[i]);
    chunk.top =
        static_cast<int>(std::min(chunk.ladder.step_bytes.size(), chunk.ladder.step_loss.size())) -
        1;
    if (chunk.top < 0) {
      GiveUpChunk(i, GiveUpReason::kNotStored);
    } else if (spec_.memory_bytes != 0 && chunk.Bytes(0, 0) > spec_.memory_bytes) {
      GiveUpChunk(i, GiveUpReason::kTooLarge);
    }
  }
  spec_.chunks.clear();
}

void LoadPlanner::OnBytes(uint32_t chunk, uint32_t first_step, uint64_t bytes) {
  std::erase_if(flights_, [&](Flight& flight) {
    if (flight.chunk != chunk || flight.first_step != static_cast<int>(first_step)) return false;
    flight.missing_bytes -= std::min(bytes, flight.missing_bytes);
    return flight.missing_bytes == 0;
  });
}

void LoadPlanner::OnStepLoaded(uint32_t chunk, uint32_t step) {
  if (chunk >= chunks_.size() || chunks_[chunk].state != State::kOpen) return;
  Chunk& state = chunks_[chunk];
  if (static_cast<int>(step) > state.asked) return;
  state.loaded = std::max(state.loaded, static_cast<int>(step));
}

void LoadPlanner::OnStepFailed(uint32_t chunk, uint32_t step, bool may_retry) {
  if (chunk >= chunks_.size() || chunks_[chunk].state != State::kOpen) return;
  Chunk& state = chunks_[chunk];
  const int failed = static_cast<int>(step);
  if (failed <= state.loaded || failed > state.asked) return;
  if (failed == 0) {
    const bool hopeless = !may_retry || link_state_ == LinkState::kLost;
    if (hopeless || state.base_attempts >= kMaxBaseAttempts) {
      GiveUpChunk(chunk, GiveUpReason::kFailed);
    } else {
      DropFlights(chunk, 0);
      state.asked = -1;
    }
    return;
  }
  DropFlights(chunk, failed);
  state.asked = std::min(state.asked, failed - 1);
  state.top = state.asked;
}

void LoadPlanner::OnComputed(uint32_t num_chunks) {
  if (spec_.capability != RecomputeCapability::kBidirectional &&
      spec_.capability != RecomputeCapability::kAny) {
    return;
  }
  for (uint32_t i = 0; i < std::min<size_t>(num_chunks, chunks_.size()); ++i) {
    if (chunks_[i].state != State::kOpen) continue;
    if (chunks_[i].loaded >= 0) {
      Close(i);
    } else {
      GiveUpChunk(i, GiveUpReason::kComputed);
    }
  }
}

void LoadPlanner::OnLinkLost(bool reconnecting) {
  link_state_ = reconnecting ? LinkState::kReconnecting : LinkState::kLost;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    if (chunk.state != State::kOpen) continue;
    // What has arrived whole is still decoded.
    DropFlights(i, 0);
    if (reconnecting) continue;
    if (chunk.asked < 0) {
      GiveUpChunk(i, GiveUpReason::kFailed);
    } else {
      chunk.top = chunk.asked;
    }
  }
}

void LoadPlanner::OnLinkRestored() { link_state_ = LinkState::kUp; }

Actions LoadPlanner::Decide(const LinkView& link, TimeUs now_us) {
  if (!finished_) {
    ExpireAt(now_us);
    if (link.stalled) DropRefinements();
    CutSuffix();
    CloseSettled(now_us);
    if (link_state_ == LinkState::kUp && now_us < last_ask_us_) {
      AskBases(link);
      if (!link.stalled && NextBase() < 0) AskRefinements(link);
    }
    FinishChunks();
  }
  next_.finished = finished_;
  return std::exchange(next_, Actions{});
}

int LoadPlanner::loaded_step(uint32_t chunk) const {
  return chunk < chunks_.size() ? chunks_[chunk].loaded : -1;
}

uint64_t LoadPlanner::unanswered_bytes() const {
  uint64_t bytes = 0;
  for (const Flight& flight : flights_) bytes += flight.missing_bytes;
  return bytes;
}

uint64_t LoadPlanner::WindowBytes(const LinkView& link) {
  if (!(link.bytes_per_s > 0)) return link.stalled ? 0 : kProbeWindowBytes;
  const double bytes = link.bytes_per_s * static_cast<double>(link.rtt_us + kWindowSlackUs) * 1e-6;
  return bytes < static_cast<double>(kMaxWindowBytes) ? static_cast<uint64_t>(bytes)
                                                      : kMaxWindowBytes;
}

// Forgets the chunk's unanswered asks that reach `first_step` or beyond.
void LoadPlanner::DropFlights(uint32_t chunk, int first_step) {
  Chunk& state = chunks_[chunk];
  int first_dropped = state.asked + 1;
  std::erase_if(flights_, [&](const Flight& flight) {
    if (flight.chunk != chunk || flight.last_step < first_step) return false;
    first_dropped = std::min(first_dropped, flight.first_step);
    return true;
  });
  if (first_dropped > state.asked) return;
  state.asked = first_dropped - 1;
  next_.cancels.push_back({chunk, static_cast<uint32_t>(first_dropped)});
}

void LoadPlanner::DropRefinements() {
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].state == State::kOpen) DropFlights(i, std::max(chunks_[i].loaded + 1, 1));
  }
}

void LoadPlanner::GiveUpChunk(uint32_t chunk, GiveUpReason why) {
  DropFlights(chunk, 0);
  chunks_[chunk].state = State::kGivenUp;
  next_.give_ups.push_back({chunk, why});
}

void LoadPlanner::Close(uint32_t chunk) {
  DropFlights(chunk, 0);
  chunks_[chunk].state = State::kClosed;
  next_.closed.push_back(chunk);
}

// What the time of day decides: at the last moment for asks, refinements on their way are dropped
// and bases that were never asked for are late; at the end of the SLO everything is.
void LoadPlanner::ExpireAt(TimeUs now_us) {
  if (now_us >= last_ask_us_) DropRefinements();
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    if (chunk.state != State::kOpen) continue;
    if (now_us >= end_us_ && chunk.loaded >= 0) {
      Close(i);
    } else if (now_us >= end_us_ || (now_us >= last_ask_us_ && chunk.asked < 0)) {
      GiveUpChunk(i, GiveUpReason::kLate);
    }
  }
}

// An engine that recomputes a suffix cannot use what lies behind the first chunk that is missing.
void LoadPlanner::CutSuffix() {
  if (spec_.capability != RecomputeCapability::kSuffix) return;
  bool cut = false;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    if (cut && !chunks_[i].final()) GiveUpChunk(i, GiveUpReason::kAfterCut);
    cut = cut || chunks_[i].state == State::kGivenUp;
  }
}

// Closes the chunks that have what they can get.
void LoadPlanner::CloseSettled(TimeUs now_us) {
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (chunk.state != State::kOpen || chunk.loaded < 0 || chunk.asked > chunk.loaded) continue;
    const bool over = now_us >= last_ask_us_ || link_state_ == LinkState::kLost;
    if (over || BestStep(i).chunk < 0) Close(i);
  }
}

// A closed chunk is final, unless chunks before it may still be missing and cut it off.
void LoadPlanner::FinishChunks() {
  bool covered = true;
  finished_ = true;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    if (spec_.capability == RecomputeCapability::kSuffix) covered = covered && chunk.loaded >= 0;
    if (chunk.state == State::kClosed && covered) {
      chunk.state = State::kLoaded;
      next_.loaded.push_back(i);
    }
    finished_ = finished_ && chunk.final();
  }
}

void LoadPlanner::AskBases(const LinkView& link) {
  for (int next = NextBase(); next >= 0; next = NextBase()) {
    const uint64_t bytes = chunks_[next].Bytes(0, 0);
    if (!WindowAllows(link, bytes) || !MakeRoom(bytes, next)) return;
    Issue(next, 0, AskClass::kBase, chunks_[next].base_attempts == 0 ? "base" : "base again");
  }
}

void LoadPlanner::AskRefinements(const LinkView& link) {
  if (CountUndecoded() > kMaxUndecoded) return;
  for (Refinement next = NextRefinement(); next.chunk >= 0; next = NextRefinement()) {
    const Chunk& chunk = chunks_[next.chunk];
    const uint64_t bytes = chunk.Bytes(chunk.asked + 1, next.last_step);
    if (!WindowAllows(link, bytes)) return;
    if (spec_.memory_bytes != 0 && HeldBytes() + bytes > spec_.memory_bytes) {
      // Chunks on their way may yet reach their last step and free their bytes.
      if (DecodePending()) return;
      if (chunk.Bytes(0, next.last_step) > spec_.memory_bytes) {
        Close(next.chunk);
        continue;
      }
      MakeRoom(bytes, next.chunk);
    }
    Issue(next.chunk, next.last_step, AskClass::kRefinement, "most loss removed per byte");
  }
}

bool LoadPlanner::WindowAllows(const LinkView& link, uint64_t bytes) const {
  if (flights_.size() >= kMaxAsksInFlight) return false;
  const size_t min_asks = link.stalled ? 1 : kMinAsksInFlight;
  return flights_.size() < min_asks || unanswered_bytes() + bytes <= WindowBytes(link);
}

// Closes chunks, from the front, until `bytes` more can be held; never `spare_chunk`.
bool LoadPlanner::MakeRoom(uint64_t bytes, int spare_chunk) {
  if (spec_.memory_bytes == 0) return true;
  uint64_t held_bytes = HeldBytes();
  for (uint32_t i = 0; i < chunks_.size() && held_bytes + bytes > spec_.memory_bytes; ++i) {
    const Chunk& chunk = chunks_[i];
    if (chunk.state != State::kOpen || static_cast<int>(i) == spare_chunk) continue;
    if (chunk.loaded < 0 || chunk.asked > chunk.loaded) continue;
    held_bytes -= chunk.Bytes(0, chunk.asked);
    Close(i);
  }
  return held_bytes + bytes <= spec_.memory_bytes;
}

uint64_t LoadPlanner::HeldBytes() const {
  uint64_t bytes = 0;
  for (const Chunk& chunk : chunks_) {
    if (chunk.state == State::kOpen) bytes += chunk.Bytes(0, chunk.asked);
  }
  return bytes;
}

// The next chunk whose base is to be asked for, -1 for none. From the back, where recomputing is
// dearest, except when only a prefix that is loaded without a gap counts.
int LoadPlanner::NextBase() const {
  const int count = static_cast<int>(chunks_.size());
  const bool forward = spec_.capability == RecomputeCapability::kSuffix;
  for (int k = 0; k < count; ++k) {
    const int i = forward ? k : count - 1 - k;
    if (chunks_[i].state == State::kOpen && chunks_[i].asked < 0) return i;
  }
  return -1;
}

// The run of next steps that removes most loss per byte; a step that removes little is passed over
// when it leads to one that removes much.
LoadPlanner::Refinement LoadPlanner::BestStep(uint32_t chunk) const {
  const Chunk& state = chunks_[chunk];
  Refinement best;
  if (state.asked < 0) return best;
  const double loss = state.ladder.step_loss[state.asked];
  if (!(loss > spec_.loss_stop)) return best;
  uint64_t bytes = 0;
  for (int step = state.asked + 1; step <= state.top; ++step) {
    bytes += state.ladder.step_bytes[step];
    const double removed = (loss - state.ladder.step_loss[step]) * state.ladder.num_tokens;
    const double gain = removed / static_cast<double>(std::max<uint64_t>(bytes, 1));
    if (gain > best.gain) best = {static_cast<int>(chunk), step, gain};
  }
  return best;
}

// The best refinement over all chunks, ties to the back. When not all steps of all open chunks fit
// into memory, chunks are finished one by one, because a finished chunk frees its bytes.
LoadPlanner::Refinement LoadPlanner::NextRefinement() const {
  uint64_t wanted_bytes = 0;
  for (const Chunk& chunk : chunks_) {
    if (chunk.state == State::kOpen) wanted_bytes += chunk.Bytes(0, chunk.top);
  }
  const bool tight = spec_.memory_bytes != 0 && wanted_bytes > spec_.memory_bytes;
  Refinement best;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].state != State::kOpen) continue;
    const Refinement step = BestStep(i);
    if (step.chunk < 0) continue;
    const int depth = tight ? chunks_[i].asked : 0;
    const int best_depth = tight && best.chunk >= 0 ? chunks_[best.chunk].asked : 0;
    if (best.chunk < 0 || depth > best_depth || (depth == best_depth && step.gain >= best.gain)) {
      best = step;
    }
  }
  return best;
}

bool LoadPlanner::DecodePending() const {
  return std::any_of(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) {
    return chunk.state == State::kOpen && chunk.asked > chunk.loaded;
  });
}

// Chunks of which a step has arrived whole and is not written yet.
size_t LoadPlanner::CountUndecoded() const {
  std::vector<int> arrived;
  for (const Chunk& chunk : chunks_) arrived.push_back(chunk.asked);
  for (const Flight& flight : flights_) {
    arrived[flight.chunk] = std::min(arrived[flight.chunk], flight.first_step - 1);
  }
  size_t count = 0;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    count += chunks_[i].state == State::kOpen && arrived[i] > chunks_[i].loaded;
  }
  return count;
}

void LoadPlanner::Issue(uint32_t chunk, int last_step, AskClass ask_class,
                        std::string_view reason) {
  Chunk& state = chunks_[chunk];
  const int first_step = state.asked + 1;
  const uint64_t bytes = state.Bytes(first_step, last_step);
  const bool base = ask_class == AskClass::kBase;
  if (base) ++state.base_attempts;
  state.asked = last_step;
  if (bytes > 0) flights_.push_back({chunk, first_step, last_step, bytes});
  next_.asks.push_back({chunk, static_cast<uint32_t>(first_step), static_cast<uint32_t>(last_step),
                        ask_class, bytes, base ? end_us_ : last_ask_us_, reason});
}

}  // namespace sluice::adapt
