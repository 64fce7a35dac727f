#include "client/cli/load_advice.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/units.h"
#include "client/load_story.h"

namespace sluice::cli {
namespace {

using adapt::TimeUs;
using client::ChunkOutcome;
using client::ChunkStory;
using client::LoadRecord;
using client::RecomputeReason;

// Times count from the start of the load; -1 is never.

// Round trips that hold nothing up. Behind longer ones the link is measured, and its window opened,
// too slowly for a promise.
constexpr TimeUs kShortTripUs = 2000;
constexpr double kShortTripShare = 0.01;  // of the time that is left

// What decoding one base was expected to take; 0: not known.
TimeUs BaseDecodeUs(const LoadRecord& record) {
  return record.spec.decode_us.empty() ? 0 : record.spec.decode_us.front();
}

// When the last base must be here; what is decoded last is decoded in the reserve.
TimeUs TargetUs(const LoadRecord& record) { return record.slo_us - record.spec.reserve_us; }

// What of the smallest levels had to come over the link, and what came.
struct BaseTransfer {
  size_t num_chunks = 0;  // that the engine had not computed
  size_t num_computed = 0;
  uint64_t bytes = 0;          // of their bases
  uint64_t all_bytes = 0;      // of those that the engine had computed as well
  uint64_t largest_bytes = 0;  // of one
  TimeUs asked_us = -1;        // for the first time
  TimeUs first_us = -1;        // the first bytes
  uint64_t came_bytes = 0;     // of `bytes`, by the target
  TimeUs rtt_us = 0;           // 0: not known
  bool stalled = false;
};

void AddEvents(const LoadRecord& record, const std::vector<ChunkStory>& stories,
               BaseTransfer& transfer) {
  std::vector<uint64_t> came(stories.size());
  for (const client::RecordedEvent& recorded : record.events) {
    const TimeUs at_us = recorded.at_us - record.spec.start_us;
    if (at_us > TargetUs(record)) break;
    if (const auto* tick = std::get_if<adapt::Tick>(&recorded.event)) {
      transfer.stalled |= tick->link.stalled;
      transfer.rtt_us = tick->link.rtt_us;
    } else if (const auto* failed = std::get_if<adapt::StepFailed>(&recorded.event)) {
      if (failed->step == 0) came[failed->chunk] = 0;
    } else if (const auto* arrived = std::get_if<adapt::BytesArrived>(&recorded.event)) {
      if (transfer.first_us < 0) transfer.first_us = at_us;
      if (arrived->first_step == 0) came[arrived->chunk] += arrived->bytes;
    }
  }
  for (size_t i = 0; i < stories.size(); ++i) {
    const auto& step_bytes = record.spec.chunks[i].step_bytes;
    if (stories[i].computed_us >= 0 || step_bytes.empty()) continue;
    transfer.came_bytes += std::min(came[i], step_bytes[0]);
  }
}

BaseTransfer TransferOf(const LoadRecord& record, const std::vector<ChunkStory>& stories) {
  BaseTransfer transfer;
  for (size_t i = 0; i < stories.size(); ++i) {
    const ChunkStory& story = stories[i];
    if (story.asked_us >= 0 && (transfer.asked_us < 0 || story.asked_us < transfer.asked_us)) {
      transfer.asked_us = story.asked_us;
    }
    const auto& step_bytes = record.spec.chunks[i].step_bytes;
    if (!step_bytes.empty()) transfer.all_bytes += step_bytes[0];
    if (story.computed_us >= 0) {
      ++transfer.num_computed;
    } else if (!step_bytes.empty()) {
      ++transfer.num_chunks;
      transfer.bytes += step_bytes[0];
      transfer.largest_bytes = std::max(transfer.largest_bytes, step_bytes[0]);
    }
  }
  AddEvents(record, stories, transfer);
  return transfer;
}

// The link that would have kept the SLO, and how sure that is.
struct NeededLink {
  double bytes_per_us = 0;  // 0: not known
  bool sure = false;
};

NeededLink LinkNeeded(const LoadRecord& record, const BaseTransfer& transfer, TimeUs decode_us) {
  // A round trip more: bytes are asked for sparingly until the first have come.
  const TimeUs begin_us = std::max(transfer.asked_us, transfer.first_us) + transfer.rtt_us;
  const auto left_us = static_cast<double>(TargetUs(record) - begin_us);
  const auto undecoded_us = left_us - static_cast<double>(decode_us);
  if (undecoded_us <= 0) return {};
  const bool short_trips = transfer.rtt_us <= kShortTripUs ||
                           static_cast<double>(transfer.rtt_us) <= kShortTripShare * left_us;
  return {std::max(static_cast<double>(transfer.all_bytes) / left_us,
                   static_cast<double>(transfer.largest_bytes) / undecoded_us),
          transfer.first_us >= 0 && short_trips};
}

// "A link of 20 MB/s, a longer SLO or ... would have kept it."
std::string WishText(const LoadRecord& record, const BaseTransfer& transfer, TimeUs decode_us) {
  const NeededLink link = LinkNeeded(record, transfer, decode_us);
  const bool computes = record.spec.capability != adapt::RecomputeCapability::kNone;
  std::string text = "A faster link";
  if (link.bytes_per_us > 0) {
    text = absl::StrCat("A link of ", link.sure ? "" : "well over ",
                        FormatRate(link.bytes_per_us * 1e6),
                        transfer.num_computed > 0 ? " (for all chunks)" : "");
  }
  return absl::StrCat(text, transfer.stalled ? " without stalls" : "",
                      ", a longer SLO or a profile with a smaller level 0 ",
                      link.sure ? "would" : "might", " have kept it",
                      computes ? "" : "; an engine that computes meanwhile might", ".");
}

std::string WhatCameText(const LoadRecord& record, const BaseTransfer& transfer) {
  std::string text = absl::StrCat(
      transfer.stalled ? "The link stalled. " : "", "The smallest level of ",
      transfer.num_computed == 0 ? "all chunks"
                                 : absl::StrCat("the ", FormatCount(transfer.num_chunks, "chunk"),
                                                " that the engine had not computed"),
      " is ", FormatBytes(static_cast<double>(transfer.bytes)));
  const auto left_us = static_cast<double>(TargetUs(record) - transfer.first_us);
  if (transfer.came_bytes == 0 || left_us <= 0) {
    return absl::StrCat(text, ", of which nothing came in time. ");
  }
  const double rate = static_cast<double>(transfer.came_bytes) / left_us;
  return absl::StrCat(text, ", which takes ",
                      FormatMs(static_cast<double>(transfer.bytes) / rate * 1e-3), " at the ",
                      FormatRate(rate * 1e6), " that came; the SLO left ", FormatMs(left_us * 1e-3),
                      " for it. ");
}

// The bases alone, of what the engine did not compute, were too much for the link.
std::string SlowLinkText(const LoadRecord& record, const std::vector<ChunkStory>& stories) {
  if (TargetUs(record) <= 0) {
    return "What is kept for the last decode and the first token takes the whole SLO: only a "
           "longer "
           "one would have been kept.";
  }
  const BaseTransfer transfer = TransferOf(record, stories);
  const std::string what = WhatCameText(record, transfer);
  // The last chunk is decoded in the reserve, the others while bytes come.
  const TimeUs decode_us =
      BaseDecodeUs(record) * static_cast<TimeUs>(std::max<size_t>(transfer.num_chunks, 1) - 1);
  const TimeUs left_us = TargetUs(record) - std::max<TimeUs>(transfer.asked_us, 0);
  if (decode_us == 0 || decode_us < left_us) {
    return absl::StrCat(what, WishText(record, transfer, decode_us));
  }
  return absl::StrCat(what, "Decoding alone takes ", FormatUs(decode_us + BaseDecodeUs(record)),
                      ", so no link would have kept it: a longer SLO or more processors would.");
}

// When the link was lost for good, if before the load's time was over: then it is closed.
TimeUs LinkLostAt(const LoadRecord& record) {
  for (const client::RecordedEvent& recorded : record.events) {
    const auto* lost = std::get_if<adapt::LinkLost>(&recorded.event);
    const TimeUs at_us = recorded.at_us - record.spec.start_us;
    if (lost != nullptr && !lost->reconnecting &&
        at_us < std::max(record.slo_us, record.spec.limit_us)) {
      return at_us;
    }
  }
  return -1;
}

// What should have been loaded and was not.
bool Lacking(const ChunkOutcome& outcome) {
  return outcome.reason == RecomputeReason::kLate ||
         outcome.reason == RecomputeReason::kServerUnavailable;
}

// Chunks that were not loaded in time, by whether their bases were here in time.
struct LateChunks {
  size_t absent = 0, undecoded = 0;
};

LateChunks CountLate(const LoadRecord& record, const std::vector<ChunkStory>& stories) {
  const TimeUs target_us = TargetUs(record);
  const TimeUs until_us = MissedSlo(record) ? record.slo_us : target_us + BaseDecodeUs(record);
  LateChunks late;
  for (size_t i = 0; i < stories.size() && i < record.outcomes.size(); ++i) {
    const ChunkStory& story = stories[i];
    const bool tardy = story.final_loaded && story.loaded_us > until_us;
    if (!tardy && !Lacking(record.outcomes[i])) continue;
    const bool here = story.base_here_us >= 0 && story.base_here_us <= target_us;
    (here ? late.undecoded : late.absent) += 1;
  }
  return late;
}

}  // namespace

bool MissedSlo(const LoadRecord& record) {
  return record.ms * 1e3 > static_cast<double>(record.slo_us) ||
         std::ranges::any_of(record.outcomes, Lacking);
}

std::string WhyLate(const LoadRecord& record) {
  if (!record.planned()) {
    const std::string why = record.outcomes.empty() ? "" : record.outcomes.front().message;
    return absl::StrCat("The load ended before anything was asked for: ", why, ".");
  }
  const std::vector<ChunkStory> stories = client::TellChunks(record);
  const LateChunks late = CountLate(record, stories);
  if (late.undecoded > late.absent) {
    return absl::StrCat(FormatCount(late.undecoded, "chunk"), " had arrived in time and ",
                        late.undecoded == 1 ? "was" : "were",
                        " not decoded in time: a longer SLO, more processors or, of a daemon, more "
                        "load.decode_threads would have helped.");
  }
  if (const TimeUs lost_us = LinkLostAt(record); lost_us >= 0) {
    return absl::StrCat("The link was lost ", FormatUs(lost_us), " after the start.");
  }
  if (late.absent > 0) return SlowLinkText(record, stories);
  if (!MissedSlo(record)) return "What was left to the engine took it too long.";
  const bool computed =
      std::ranges::any_of(stories, [](const ChunkStory& story) { return story.computing_us >= 0; });
  return computed ? "The engine took longer to compute its chunks than it had told."
                  : "No chunk was late, only the load's end: processors were busy.";
}

}  // namespace sluice::cli
