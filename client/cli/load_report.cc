#include "client/cli/load_report.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/load_advice.h"
#include "client/cli/options.h"
#include "client/cli/units.h"
#include "client/load_story.h"

namespace sluice::cli {
namespace {

using adapt::TimeUs;
using client::ChunkOutcome;
using client::ChunkStory;
using client::LoadRecord;
using client::RecomputeReason;

std::string Ms(TimeUs us) { return us < 0 ? "-" : FormatUs(us); }

std::string Bytes(uint64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

bool Loaded(const ChunkOutcome& outcome) { return outcome.reason == RecomputeReason::kNone; }

std::string ReasonName(RecomputeReason reason) {
  return std::string(client::RecomputeReasonName(reason));
}

std::string CountsText(const std::map<std::string, size_t>& counts) {
  return absl::StrJoin(counts, ", ", absl::PairFormatter(": "));
}

const adapt::Tick* FirstTick(const LoadRecord& record) {
  for (const client::RecordedEvent& recorded : record.events) {
    if (const auto* tick = std::get_if<adapt::Tick>(&recorded.event)) return tick;
  }
  return nullptr;
}

std::string LinkText(const LoadRecord& record) {
  const adapt::Tick* first = FirstTick(record);
  if (first == nullptr) return "not asked";
  double least = 0, most = 0;
  bool stalled = false;
  for (const client::RecordedEvent& recorded : record.events) {
    const auto* tick = std::get_if<adapt::Tick>(&recorded.event);
    if (tick == nullptr) continue;
    stalled |= tick->link.stalled;
    const double rate = tick->link.mean_bytes_per_s;
    if (!(rate > 0)) continue;
    least = least > 0 ? std::min(least, rate) : rate;
    most = std::max(most, rate);
  }
  const std::string start = first->link.mean_bytes_per_s > 0
                                ? absl::StrCat("estimated at ", FormatRate(first->link.bytes_per_s),
                                               " to ", FormatRate(first->link.mean_bytes_per_s))
                                : "unknown";
  std::string text = absl::StrCat(start, " at the start");
  if (most > 0) absl::StrAppend(&text, ", ", FormatRate(least), " to ", FormatRate(most), " later");
  return stalled ? text + "; it stalled" : text;
}

std::string OutcomeText(const LoadRecord& record, size_t chunk, const ChunkStory& story) {
  const auto& outcomes = record.outcomes;
  std::string text, reason(story.final_reason);
  if (chunk < outcomes.size()) {
    const ChunkOutcome& outcome = outcomes[chunk];
    text = Loaded(outcome) ? absl::StrCat("level ", codec::LevelName(outcome.level))
                           : absl::StrCat("recompute, ", ReasonName(outcome.reason));
    if (!outcome.message.empty()) reason = outcome.message;
    // There is nothing to refine: why that ended says nothing.
    const size_t num_steps = record.spec.chunks[chunk].step_bytes.size();
    if (story.final_loaded && static_cast<size_t>(story.loaded_step) + 1 == num_steps) reason = "";
  }
  return reason.empty() ? text : absl::StrCat(text, ": ", reason);
}

// "1+3": asks for the base and for refinements.
std::string AsksText(const ChunkStory& story) {
  if (story.num_asks == 0) return "-";
  return absl::StrCat(story.num_asks - story.num_refinements, "+", story.num_refinements);
}

Json StoryToJson(const ChunkStory& story, const std::vector<codec::Level>& levels) {
  const auto ms = [](TimeUs us) { return us < 0 ? Json() : Json(static_cast<double>(us) * 1e-3); };
  return {{"asked_ms", ms(story.asked_us)},
          {"asked_reason", std::string(story.asked_reason)},
          {"asks", story.num_asks},
          {"refinements", story.num_refinements},
          {"base_here_ms", ms(story.base_here_us)},
          {"bytes", story.bytes},
          {"loaded_level",
           story.loaded_step < 0 ? Json() : Json(codec::LevelName(levels[story.loaded_step]))},
          {"loaded_ms", ms(story.loaded_us)},
          {"computing_ms", ms(story.computing_us)},
          {"computed_ms", ms(story.computed_us)},
          {"final_ms", ms(story.final_us)},
          {"final_reason", std::string(story.final_reason)}};
}

}  // namespace

std::string ResultText(const LoadRecord& record) {
  std::map<std::string, size_t> levels, reasons;
  size_t loaded = 0;
  for (const ChunkOutcome& outcome : record.outcomes) {
    loaded += Loaded(outcome);
    if (Loaded(outcome)) {
      ++levels[absl::StrCat("level ", codec::LevelName(outcome.level))];
    } else {
      ++reasons[ReasonName(outcome.reason)];
    }
  }
  std::string text = absl::StrCat(loaded, " of ", record.outcomes.size(), " chunks loaded");
  if (loaded > 0) absl::StrAppend(&text, " (", CountsText(levels), ")");
  if (!reasons.empty()) {
    absl::StrAppend(&text, ", ", record.outcomes.size() - loaded, " to recompute (",
                    CountsText(reasons), ")");
  }
  absl::StrAppend(&text, ", ", Bytes(record.bytes), " in ", FormatMs(record.ms));
  return text;
}

NamedValues SummaryOf(const LoadRecord& record) {
  NamedValues values;
  const auto add = [&values](const char* name, std::string value) {
    if (!value.empty()) values.emplace_back(name, std::move(value));
  };
  add("load", record.load_id);
  add("program", record.program);
  add("server", record.server);
  if (record.namespace_digest != codec::Digest{}) {
    add("namespace", codec::DigestHex(record.namespace_digest));
  }
  if (record.start != absl::UnixEpoch()) {
    add("start", absl::FormatTime("%Y-%m-%d %H:%M:%E3S UTC", record.start, absl::UTCTimeZone()));
  }
  add("context",
      absl::StrCat(FormatCount(record.outcomes.size(), "chunk"), " of ",
                   FormatCount(record.chunk_tokens, "token"), ", from chunk ", record.first_chunk));
  // Requests give whole milliseconds.
  const bool is_rest = record.slo_us % 1000 != 0;
  add("SLO",
      absl::StrCat(Ms(record.slo_us), is_rest ? " left of the request's when the load began" : "",
                   ", of which ", Ms(record.spec.reserve_us),
                   " are kept for the last decode and the first token"));
  if (record.planned()) {
    add("engine", absl::StrCat("can compute: ", CapabilityName(record.spec.capability),
                               record.spec.compute_us.empty() ? "; its cost is not known" : ""));
  }
  if (const auto [least, most] = std::ranges::minmax_element(record.spec.decode_us);
      least != record.spec.decode_us.end() && *most > 0) {
    add("decode", absl::StrCat("expected to take ", Ms(*least), " to ", Ms(*most), " a chunk"));
  }
  add("link", LinkText(record));
  add("result", absl::StrCat(ResultText(record), MissedSlo(record) ? ": SLO missed" : ""));
  return values;
}

Table ChunkTable(const LoadRecord& record) {
  Table table({{"chunk"},
               {"asked"},
               {"here"},
               {"asks"},
               {"bytes"},
               {"level"},
               {"loaded"},
               {"computed"},
               {"asked because", Align::kLeft},
               {"outcome", Align::kLeft}});
  const std::vector<ChunkStory> stories = client::TellChunks(record);
  const std::vector<codec::Level> levels = client::LevelsOfSteps(record, stories);
  for (size_t i = 0; i < stories.size(); ++i) {
    const ChunkStory& story = stories[i];
    table.Add({absl::StrCat(record.first_chunk + i), Ms(story.asked_us), Ms(story.base_here_us),
               AsksText(story), Bytes(story.bytes),
               story.loaded_step < 0 ? "-" : codec::LevelName(levels[story.loaded_step]),
               Ms(story.loaded_us), Ms(story.computed_us), std::string(story.asked_reason),
               OutcomeText(record, i, story)});
  }
  return table;
}

std::string Advice(const LoadRecord& record) { return MissedSlo(record) ? WhyLate(record) : ""; }

Json ToJson(const LoadRecord& record) {
  Json decode_ms = Json::array();
  for (const TimeUs us : record.spec.decode_us) decode_ms.push_back(static_cast<double>(us) * 1e-3);
  Json json = {{"load_id", record.load_id},
               {"program", record.program},
               {"server", record.server},
               {"namespace", codec::DigestHex(record.namespace_digest)},
               {"start_unix_ms", absl::ToUnixMillis(record.start)},
               {"chunk_tokens", record.chunk_tokens},
               {"first_chunk", record.first_chunk},
               {"slo_ms", static_cast<double>(record.slo_us) * 1e-3},
               {"reserve_ms", static_cast<double>(record.spec.reserve_us) * 1e-3},
               {"decode_ms", std::move(decode_ms)},
               {"recompute", CapabilityName(record.spec.capability)},
               {"bytes", record.bytes},
               {"ms", record.ms},
               {"missed_slo", MissedSlo(record)},
               {"advice", Advice(record)},
               {"events", record.events.size()},
               {"omitted_events", record.omitted_events}};
  const std::vector<ChunkStory> stories = client::TellChunks(record);
  const std::vector<codec::Level> levels = client::LevelsOfSteps(record, stories);
  Json chunks = Json::array();
  for (size_t i = 0; i < record.outcomes.size(); ++i) {
    const ChunkOutcome& outcome = record.outcomes[i];
    Json chunk = {{"chunk", outcome.chunk_index},
                  {"outcome", Loaded(outcome) ? "loaded" : "recompute"},
                  {"level", Loaded(outcome) ? Json(codec::LevelName(outcome.level)) : Json()},
                  {"reason", Loaded(outcome) ? Json() : Json(ReasonName(outcome.reason))},
                  {"message", outcome.message}};
    if (i < stories.size()) chunk.update(StoryToJson(stories[i], levels));
    chunks.push_back(std::move(chunk));
  }
  json["chunks"] = std::move(chunks);
  return json;
}

}  // namespace sluice::cli
