#include "client/load_simulation.h"

#include <algorithm>
#include <utility>

#include "client/load_story.h"

namespace sluice::client {
namespace {

RecomputeReason ReasonOf(adapt::GiveUpReason why) {
  switch (why) {
    case adapt::GiveUpReason::kNotStored:
      return RecomputeReason::kNotStored;
    case adapt::GiveUpReason::kLate:
      return RecomputeReason::kLate;
    case adapt::GiveUpReason::kFailed:
      return RecomputeReason::kServerUnavailable;
    case adapt::GiveUpReason::kAfterCut:
      return RecomputeReason::kAfterCut;
    case adapt::GiveUpReason::kComputed:
      return RecomputeReason::kComputed;
    case adapt::GiveUpReason::kTooLarge:
      return RecomputeReason::kNodeBusy;
    case adapt::GiveUpReason::kComputeFaster:
      return RecomputeReason::kComputeFaster;
  }
  return RecomputeReason::kLate;
}

double Milliseconds(adapt::TimeUs us) { return static_cast<double>(us) * 1e-3; }

void AddOutcomes(LoadRecord& record) {
  for (const ChunkStory& story : TellChunks(record)) {
    ChunkOutcome& outcome = record.outcomes.emplace_back();
    outcome.chunk_index = static_cast<uint32_t>(record.outcomes.size() - 1);
    outcome.bytes = story.bytes;
    outcome.ms = Milliseconds(story.final_loaded ? story.loaded_us : story.final_us);
    if (story.final_loaded) {
      outcome.level = static_cast<codec::Level>(story.loaded_step);
    } else {
      outcome.reason = story.given_up ? ReasonOf(*story.given_up) : RecomputeReason::kLate;
      outcome.message = std::string(story.final_reason);
    }
    record.bytes += story.bytes;
    record.ms = std::max(record.ms, Milliseconds(story.final_us));
  }
}

}  // namespace

RecordingDriver::RecordingDriver()
    : SluiceDriver([this](LoadId id, adapt::TimeUs now_us, const adapt::Event& event,
                          const adapt::Actions& actions) {
        recordings_.at(id).log.Add(now_us, event, actions);
      }) {}

sim::LoadDriver::LoadId RecordingDriver::Add(const adapt::LoadSpec& spec) {
  const LoadId id = SluiceDriver::Add(spec);
  recordings_[id].spec = spec;
  return id;
}

std::vector<LoadRecord> RecordingDriver::TakeRecords() {
  std::vector<LoadRecord> records;
  for (auto& [id, recording] : std::exchange(recordings_, {})) {
    LoadRecord& record = records.emplace_back();
    record.start = absl::UnixEpoch();
    record.slo_us = recording.spec.slo_us;
    record.spec = std::move(recording.spec);
    record.omitted_events = recording.log.omitted_events();
    record.events = recording.log.TakeEvents();
    if (!record.spec.chunks.empty()) record.chunk_tokens = record.spec.chunks[0].num_tokens;
    AddOutcomes(record);
  }
  return records;
}

}  // namespace sluice::client
