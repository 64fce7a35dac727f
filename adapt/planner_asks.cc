// What a load asks for next, and what of it fits into its memory.
#include <algorithm>

#include "adapt/planner.h"

namespace sluice::adapt {

bool LoadPlanner::MayAsk() const {
  return !finished_ && link_state_ == LinkState::kUp && flights_.size() < kMaxAsksInFlight;
}

std::optional<LoadPlanner::Wish> LoadPlanner::BaseWish() const {
  const TimeUs last_us = end_us_ - std::max<TimeUs>(spec_.reserve_us, 0);
  if (!MayAsk() || now_us_ >= last_us) return std::nullopt;
  const int next = NextBase();
  if (next < 0) return std::nullopt;
  return Wish{static_cast<uint32_t>(next), 0, chunks_[next].Bytes(0, 0)};
}

// The next chunk whose base is to be asked for, -1 for none. From the back, where computing is
// dearest, except when only a prefix that is loaded without a gap counts. What the engine is just
// computing comes last so: link and engine race for it.
int LoadPlanner::NextBase() const {
  const int count = static_cast<int>(chunks_.size());
  const bool forward = spec_.capability == RecomputeCapability::kSuffix;
  for (int k = 0; k < count; ++k) {
    const int i = forward ? k : count - 1 - k;
    if (chunks_[i].state == State::kOpen && chunks_[i].asked < 0) return i;
  }
  return -1;
}

// The best refinement over all chunks, ties to the back. When not all steps of all open chunks fit
// into memory, chunks are finished one by one, because a finished chunk frees its bytes.
std::optional<LoadPlanner::Wish> LoadPlanner::RefinementWish() const {
  if (!MayAsk() || link_.stalled || now_us_ >= refine_until_us()) return std::nullopt;
  if (CountUndecoded() > kMaxUndecoded) return std::nullopt;
  uint64_t wanted_bytes = 0;
  size_t pending = 0;  // chunks with steps that are not decoded
  for (const Chunk& chunk : chunks_) {
    if (chunk.state != State::kOpen) continue;
    wanted_bytes += chunk.Bytes(0, chunk.top);
    pending += chunk.asked > chunk.loaded ? 1 : 0;
  }
  const bool tight = spec_.memory_bytes != 0 && wanted_bytes > spec_.memory_bytes;
  std::optional<Wish> best;
  double best_gain = 0;
  int best_depth = 0;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].state != State::kOpen) continue;
    if (Computing() && i == next_compute_) continue;
    double gain = 0;
    const std::optional<Wish> steps = BestSteps(i, gain);
    if (!steps.has_value()) continue;
    const int depth = tight ? chunks_[i].asked : 0;
    if (!best.has_value() || depth > best_depth || (depth == best_depth && gain >= best_gain)) {
      best = steps;
      best_gain = gain;
      best_depth = depth;
    }
  }
  if (best.has_value() && !DecodedInTime(*best, pending)) best.reset();
  return best;
}

// The run of next steps that removes most loss per byte; a step that removes little is passed over
// when it leads to one that removes much.
std::optional<LoadPlanner::Wish> LoadPlanner::BestSteps(uint32_t chunk, double& gain) const {
  const Chunk& state = chunks_[chunk];
  std::optional<Wish> best;
  if (state.asked < 0) return best;
  const double loss = state.ladder.step_loss[state.asked];
  if (!(loss > spec_.loss_stop)) return best;
  uint64_t bytes = 0;
  for (int step = state.asked + 1; step <= state.top; ++step) {
    bytes += state.ladder.step_bytes[step];
    const double removed = (loss - state.ladder.step_loss[step]) * state.ladder.num_tokens;
    const double step_gain = removed / static_cast<double>(std::max<uint64_t>(bytes, 1));
    if (step_gain <= gain) continue;
    gain = step_gain;
    best = Wish{chunk, step, bytes};
  }
  return best;
}

void LoadPlanner::On(const GrantBase&) {
  const std::optional<Wish> wish = BaseWish();
  if (!wish.has_value() || !MakeRoom(wish->bytes, static_cast<int>(wish->chunk))) return;
  const bool again = chunks_[wish->chunk].base_attempts > 0;
  Issue(*wish, AskClass::kBase, again ? "its base failed once" : "base of every chunk first");
}

void LoadPlanner::On(const GrantRefinement&) {
  for (std::optional<Wish> wish = RefinementWish(); wish.has_value(); wish = RefinementWish()) {
    if (spec_.memory_bytes != 0 && HeldBytes() + wish->bytes > spec_.memory_bytes) {
      // Chunks on their way may yet reach their last step and free their bytes.
      if (DecodePending()) return;
      if (chunks_[wish->chunk].Bytes(0, wish->last_step) > spec_.memory_bytes) {
        CloseChunk(wish->chunk, "more bytes than a load may hold");
        continue;
      }
      MakeRoom(wish->bytes, static_cast<int>(wish->chunk));
    }
    Issue(*wish, AskClass::kRefinement, "most loss removed per byte");
    return;
  }
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
    CloseChunk(i, "its bytes make room for another chunk");
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

bool LoadPlanner::DecodePending() const {
  return std::any_of(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) {
    return chunk.state == State::kOpen && chunk.asked > chunk.loaded;
  });
}

// Chunks of which a step has arrived whole and is not written yet.
size_t LoadPlanner::CountUndecoded() const {
  size_t count = 0;
  for (const Chunk& chunk : chunks_) {
    count += chunk.state == State::kOpen && chunk.asked > chunk.loaded;
  }
  // Of those, the ones whose next step is still on its way.
  for (const Flight& flight : flights_) {
    const Chunk& chunk = chunks_[flight.chunk];
    count -= chunk.state == State::kOpen && flight.first_step == chunk.loaded + 1;
  }
  return count;
}

// Would it be decoded while that counts, behind the chunks that wait for their decode?
bool LoadPlanner::DecodedInTime(const Wish& wish, size_t pending) const {
  if (!(link_.mean_bytes_per_s > 0)) return true;
  const Chunk& chunk = chunks_[wish.chunk];
  const size_t count = pending + (chunk.asked > chunk.loaded ? 0 : 1);
  const auto bytes = static_cast<double>(unanswered_bytes_ + wish.bytes);
  return LoadUs(bytes, link_.mean_bytes_per_s, count, wish.last_step) <=
         static_cast<double>(refine_until_us() - now_us_);
}

void LoadPlanner::Issue(const Wish& wish, AskClass ask_class, std::string_view reason) {
  Chunk& chunk = chunks_[wish.chunk];
  const int first_step = chunk.asked + 1;
  const bool base = ask_class == AskClass::kBase;
  if (base) ++chunk.base_attempts;
  chunk.asked = wish.last_step;
  if (wish.bytes > 0) flights_.push_back({wish.chunk, first_step, wish.last_step, wish.bytes});
  unanswered_bytes_ += wish.bytes;
  next_.asks.push_back({wish.chunk, static_cast<uint32_t>(first_step),
                        static_cast<uint32_t>(wish.last_step), ask_class, wish.bytes,
                        base ? end_us_ : refine_until_us(), reason});
}

}  // namespace sluice::adapt
