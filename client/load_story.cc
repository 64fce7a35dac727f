#include "client/load_story.h"

#include <algorithm>
#include <numeric>

namespace sluice::client {
namespace {

class StoryTeller {
 public:
  explicit StoryTeller(const adapt::LoadSpec& spec)
      : spec_(spec), stories_(spec.chunks.size()), base_bytes_(spec.chunks.size()) {}

  void Tell(const RecordedEvent& recorded) {
    now_us_ = recorded.at_us - spec_.start_us;
    std::visit([this](const auto& event) { On(event); }, recorded.event);
    TellActions(recorded.actions);
  }
  std::vector<ChunkStory> Take() { return std::move(stories_); }

 private:
  void On(const adapt::BytesArrived& event) {
    ChunkStory& story = stories_[event.chunk];
    story.bytes += event.bytes;
    story.last_byte_us = now_us_;
    const auto& step_bytes = spec_.chunks[event.chunk].step_bytes;
    if (event.first_step != 0 || story.base_here_us >= 0 || step_bytes.empty()) return;
    base_bytes_[event.chunk] += event.bytes;
    if (base_bytes_[event.chunk] >= step_bytes[0]) story.base_here_us = now_us_;
  }
  void On(const adapt::StepFailed& event) {
    if (event.step > 0) return;
    base_bytes_[event.chunk] = 0;
    stories_[event.chunk].base_here_us = -1;
  }
  void On(const adapt::StepLoaded& event) {
    ChunkStory& story = stories_[event.chunk];
    if (story.final_us >= 0 || static_cast<int>(event.step) <= story.loaded_step) return;
    story.loaded_step = static_cast<int>(event.step);
    story.loaded_us = now_us_;
  }
  void On(const adapt::ChunksComputed& event) {
    const size_t count = std::min<size_t>(event.num_chunks, stories_.size());
    for (size_t i = 0; i < count; ++i) {
      if (stories_[i].computed_us < 0) stories_[i].computed_us = now_us_;
    }
  }
  template <typename Other>
  void On(const Other&) {}

  void TellActions(const adapt::Actions& actions) {
    for (const adapt::Ask& ask : actions.asks) {
      ChunkStory& story = stories_[ask.chunk];
      ++story.num_asks;
      story.num_refinements += ask.ask_class == adapt::AskClass::kRefinement;
      if (story.asked_us >= 0) continue;
      story.asked_us = now_us_;
      story.asked_reason = ask.reason;
    }
    if (actions.compute.has_value()) stories_[actions.compute->chunk].computing_us = now_us_;
    for (const adapt::Close& close : actions.closes) {
      stories_[close.chunk].final_reason = close.reason;
    }
    for (const uint32_t chunk : actions.loaded) {
      stories_[chunk].final_loaded = true;
      stories_[chunk].final_us = now_us_;
    }
    for (const adapt::GiveUp& give_up : actions.give_ups) {
      ChunkStory& story = stories_[give_up.chunk];
      story.given_up = give_up.why;
      story.final_us = now_us_;
      story.final_reason = give_up.reason;
    }
  }

  const adapt::LoadSpec& spec_;
  adapt::TimeUs now_us_ = 0;
  std::vector<ChunkStory> stories_;
  std::vector<uint64_t> base_bytes_;  // that have come of each chunk's base
};

}  // namespace

std::vector<ChunkStory> TellChunks(const LoadRecord& record) {
  StoryTeller teller(record.spec);
  for (const RecordedEvent& recorded : record.events) teller.Tell(recorded);
  return teller.Take();
}

uint64_t WastedBytes(const LoadRecord& record) {
  const std::vector<ChunkStory> stories = TellChunks(record);
  uint64_t used = 0;
  for (size_t i = 0; i < stories.size(); ++i) {
    if (!stories[i].final_loaded) continue;
    const std::vector<uint64_t>& step_bytes = record.spec.chunks[i].step_bytes;
    for (int step = 0; step <= stories[i].loaded_step; ++step) used += step_bytes[step];
  }
  return record.bytes - std::min(record.bytes, used);
}

std::vector<codec::Level> LevelsOfSteps(const LoadRecord& record,
                                        const std::vector<ChunkStory>& stories) {
  size_t num_steps = 0;
  for (const adapt::ChunkLadder& ladder : record.spec.chunks) {
    num_steps = std::max(num_steps, ladder.step_bytes.size());
  }
  std::vector<codec::Level> levels(num_steps);
  std::iota(levels.begin(), levels.end(), codec::Level{0});
  for (size_t i = 0; i < stories.size() && i < record.outcomes.size(); ++i) {
    const auto step = static_cast<size_t>(stories[i].loaded_step);
    const bool loaded = record.outcomes[i].reason == RecomputeReason::kNone;
    if (loaded && step < num_steps) levels[step] = record.outcomes[i].level;
  }
  return levels;
}

}  // namespace sluice::client
