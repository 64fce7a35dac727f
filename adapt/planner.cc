#include "adapt/planner.h"

#include <algorithm>
#include <utility>

namespace sluice::adapt {
namespace {

constexpr std::string_view kNoTimeToRefine = "no time left for a finer level";

}  // namespace

uint64_t LoadPlanner::Chunk::Bytes(int first, int last) const {
  uint64_t bytes = 0;
  for (int step = first; step <= last; ++step) bytes += ladder.step_bytes[step];
  return bytes;
}

LoadPlanner::LoadPlanner(LoadSpec spec) : spec_(std::move(spec)) {
  const TimeUs slo_us = std::max<TimeUs>(spec_.slo_us, 0);
  end_us_ = spec_.start_us + std::max(spec_.limit_us, slo_us);
  last_ask_us_ = spec_.start_us + slo_us - std::max<TimeUs>(spec_.reserve_us, 0);
  now_us_ = spec_.start_us;
  chunks_.resize(spec_.chunks.size());
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    chunk.ladder = std::move(spec_.chunks[i]);
    const size_t steps = std::min(chunk.ladder.step_bytes.size(), chunk.ladder.step_loss.size());
    chunk.top = static_cast<int>(steps) - 1;
    chunk.good = chunk.top;
    for (int step = chunk.top; step >= 0; --step) {
      if (chunk.ladder.step_loss[step] <= spec_.loss_stop) chunk.good = step;
    }
    if (chunk.top < 0) {
      GiveUpChunk(i, GiveUpReason::kNotStored, "not stored");
    } else if (spec_.memory_bytes != 0 && chunk.Bytes(0, 0) > spec_.memory_bytes) {
      GiveUpChunk(i, GiveUpReason::kTooLarge, "more bytes than a load may hold");
    }
  }
  spec_.chunks.clear();
}

Actions LoadPlanner::Apply(const Event& event, TimeUs now_us) {
  now_us_ = std::max(now_us_, now_us);
  if (!finished_) std::visit([this](const auto& happened) { On(happened); }, event);
  next_.finished = finished_;
  return std::exchange(next_, Actions{});
}

void LoadPlanner::On(const BytesArrived& event) {
  std::erase_if(flights_, [&](Flight& flight) {
    const int first_step = static_cast<int>(event.first_step);
    if (flight.chunk != event.chunk || flight.first_step != first_step) return false;
    const uint64_t bytes = std::min(event.bytes, flight.missing_bytes);
    flight.missing_bytes -= bytes;
    if (!flight.shared) unanswered_bytes_ -= bytes;
    return flight.missing_bytes == 0;
  });
}

void LoadPlanner::On(const AskShared& event) {
  for (Flight& flight : flights_) {
    const bool meant =
        flight.chunk == event.chunk && flight.first_step == static_cast<int>(event.first_step);
    if (!meant || flight.shared == event.shared) continue;
    flight.shared = event.shared;
    unanswered_bytes_ += event.shared ? -flight.missing_bytes : flight.missing_bytes;
  }
}

void LoadPlanner::On(const StepLoaded& event) {
  if (event.chunk >= chunks_.size() || chunks_[event.chunk].state != State::kOpen) return;
  Chunk& chunk = chunks_[event.chunk];
  const int step = static_cast<int>(event.step);
  if (step <= chunk.asked) chunk.loaded = std::max(chunk.loaded, step);
}

void LoadPlanner::On(const StepFailed& event) {
  if (event.chunk >= chunks_.size() || chunks_[event.chunk].state != State::kOpen) return;
  Chunk& chunk = chunks_[event.chunk];
  const int failed = static_cast<int>(event.step);
  if (failed <= chunk.loaded || failed > chunk.asked) return;
  if (failed == 0) {
    const bool hopeless = !event.may_retry || link_state_ == LinkState::kLost;
    if (hopeless || chunk.base_attempts >= kMaxBaseAttempts) {
      GiveUpChunk(event.chunk, GiveUpReason::kFailed, "its base failed");
    } else {
      DropFlights(event.chunk, 0, "its base failed");
      chunk.asked = -1;
    }
    return;
  }
  DropFlights(event.chunk, failed, "a step before it failed");
  chunk.asked = std::min(chunk.asked, failed - 1);
  chunk.top = chunk.asked;
}

void LoadPlanner::On(const ChunksComputed& event) {
  if (!computes_beside() && spec_.capability != RecomputeCapability::kAny) return;
  const uint32_t count = std::min<uint32_t>(event.num_chunks, chunks_.size());
  for (uint32_t i = 0; i < count; ++i) {
    if (left_to_engine(i)) left_compute_us_ -= ToldComputeUs(i);
    chunks_[i].computed = true;
    if (!chunks_[i].final()) GiveUpChunk(i, GiveUpReason::kComputed, "computed");
  }
  if (count <= next_compute_) return;
  next_compute_ = count;
  computing_since_us_ = -1;
}

void LoadPlanner::On(const LinkLost& event) {
  link_state_ = event.reconnecting ? LinkState::kReconnecting : LinkState::kLost;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    if (chunk.state != State::kOpen) continue;
    // What has arrived whole is still decoded.
    DropFlights(i, 0, "the link is lost");
    if (event.reconnecting) continue;
    if (chunk.asked < 0) {
      GiveUpChunk(i, GiveUpReason::kFailed, "the link is lost");
    } else {
      chunk.top = chunk.asked;
    }
  }
}

void LoadPlanner::On(const LinkRestored&) { link_state_ = LinkState::kUp; }

void LoadPlanner::On(const Demoted& event) { demoted_ = event.demoted; }

void LoadPlanner::On(const Tick& event) {
  link_ = event.link;
  pace_ = event.pace;
  pace_.high_scale = std::max(pace_.high_scale, pace_.scale);
  Expire();
  if (link_.stalled) DropRefinements("the link has stalled");
  DecideDecline();
  DecideCut();
  CutSuffix();
  DecideCompute();
  CloseSettled();
  FinishChunks();
}

TimeUs LoadPlanner::WakeUs() const {
  const TimeUs last_base_us = end_us_ - std::max<TimeUs>(spec_.reserve_us, 0);
  TimeUs wake_us = now_us_ + kTickUs;
  for (const TimeUs at_us : {refine_until_us(), last_base_us, end_us_}) {
    if (at_us > now_us_) wake_us = std::min(wake_us, at_us);
  }
  return wake_us;
}

int LoadPlanner::loaded_step(uint32_t chunk) const {
  return chunk < chunks_.size() ? chunks_[chunk].loaded : -1;
}

uint64_t LoadPlanner::MissingBaseBytes() const {
  uint64_t bytes = 0;
  for (const Chunk& chunk : chunks_) {
    if (chunk.state == State::kOpen && chunk.asked < 0) bytes += chunk.Bytes(0, 0);
  }
  for (const Flight& flight : flights_) bytes += flight.first_step == 0 ? flight.missing_bytes : 0;
  return bytes;
}

double LoadPlanner::RefinementLevel() const {
  double steps = 0, tokens = 0;
  for (const Chunk& chunk : chunks_) {
    if (chunk.state == State::kGivenUp) continue;
    steps += static_cast<double>(std::max(chunk.asked, 0)) * chunk.ladder.num_tokens;
    tokens += chunk.ladder.num_tokens;
  }
  return tokens > 0 ? steps / tokens : 0;
}

// Forgets the chunk's unanswered asks that reach `first_step` or beyond.
void LoadPlanner::DropFlights(uint32_t chunk, int first_step, std::string_view reason) {
  Chunk& state = chunks_[chunk];
  int first_dropped = state.asked + 1;
  std::erase_if(flights_, [&](const Flight& flight) {
    if (flight.chunk != chunk || flight.last_step < first_step) return false;
    first_dropped = std::min(first_dropped, flight.first_step);
    if (!flight.shared) unanswered_bytes_ -= flight.missing_bytes;
    return true;
  });
  if (first_dropped > state.asked) return;
  state.asked = first_dropped - 1;
  next_.cancels.push_back({chunk, static_cast<uint32_t>(first_dropped), reason});
}

void LoadPlanner::DropRefinements(std::string_view reason) {
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (chunk.state == State::kOpen) DropFlights(i, std::max(chunk.loaded + 1, 1), reason);
  }
}

void LoadPlanner::GiveUpChunk(uint32_t chunk, GiveUpReason why, std::string_view reason) {
  DropFlights(chunk, 0, reason);
  chunks_[chunk].state = State::kGivenUp;
  if (left_to_engine(chunk)) left_compute_us_ += ToldComputeUs(chunk);
  next_.give_ups.push_back({chunk, why, reason});
}

void LoadPlanner::CloseChunk(uint32_t chunk, std::string_view reason) {
  DropFlights(chunk, 0, reason);
  chunks_[chunk].state = State::kClosed;
  next_.closes.push_back({chunk, reason});
}

// What the time of day decides: when refinement would be late, what is on its way is dropped; at
// the end everything that is not loaded is late, and a little before it what was never asked for.
void LoadPlanner::Expire() {
  if (now_us_ >= refine_until_us()) DropRefinements(kNoTimeToRefine);
  const TimeUs reserve_us = std::max<TimeUs>(spec_.reserve_us, 0);
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (chunk.state != State::kOpen || chunk.loaded >= 0) continue;
    if (now_us_ >= end_us_ || (now_us_ >= end_us_ - reserve_us && chunk.asked < 0)) {
      GiveUpChunk(i, GiveUpReason::kLate, "the time is over");
    }
  }
}

// An engine that recomputes a suffix cannot use what lies behind the first chunk that is missing.
void LoadPlanner::CutSuffix() {
  if (spec_.capability != RecomputeCapability::kSuffix) return;
  bool cut = false;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    if (cut && !chunks_[i].final()) {
      GiveUpChunk(i, GiveUpReason::kAfterCut, "behind a chunk that is not loaded");
    }
    cut = cut || chunks_[i].state == State::kGivenUp;
  }
}

// Closes the chunks that have what they can get.
void LoadPlanner::CloseSettled() {
  const bool late = now_us_ >= refine_until_us();
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (chunk.state != State::kOpen || chunk.loaded < 0) continue;
    // A refinement that is not decoded by now must not make the load late.
    if (late) CloseChunk(i, kNoTimeToRefine);
    if (late || chunk.asked > chunk.loaded) continue;
    double gain = 0;
    if (link_state_ == LinkState::kLost) {
      CloseChunk(i, "no link to refine it");
    } else if (!BestSteps(i, gain).has_value()) {
      CloseChunk(i, "good enough or at its finest level");
    }
  }
}

// A closed chunk is final, unless a cut may still come before it, or the engine may still compute
// something better in time.
void LoadPlanner::FinishChunks() {
  const bool covered = Covered();
  const bool in_time = now_us_ < refine_until_us();
  const bool may_improve = computes_beside() && (!covered || (in_time && Computing()));
  const bool suffix = spec_.capability == RecomputeCapability::kSuffix;
  bool may_be_cut = false;
  finished_ = true;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    const bool good = chunk.loaded >= chunk.good;
    const bool over = now_us_ >= end_us_;
    if (chunk.state == State::kClosed && !may_be_cut && (good || over || !may_improve)) {
      chunk.state = State::kLoaded;
      next_.loaded.push_back(i);
    }
    may_be_cut = may_be_cut || (suffix && chunk.state != State::kLoaded);
    finished_ = finished_ && chunk.final();
  }
}

}  // namespace sluice::adapt
