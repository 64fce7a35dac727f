#include "client/load_record.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "adapt/planner.h"

namespace sluice::client {
namespace {

uint64_t MemoryOf(const adapt::Actions& actions) {
  return actions.cancels.size() * sizeof(adapt::Cancel) +
         actions.give_ups.size() * sizeof(adapt::GiveUp) +
         actions.closes.size() * sizeof(adapt::Close) + actions.loaded.size() * sizeof(uint32_t) +
         actions.asks.size() * sizeof(adapt::Ask);
}

std::string Steps(uint32_t first, uint32_t last) {
  return first == last ? absl::StrCat("step ", first) : absl::StrCat("steps ", first, "-", last);
}

struct EventText {
  std::string operator()(const adapt::BytesArrived& e) const {
    return absl::StrCat("arrived: chunk ", e.chunk, ", ", e.bytes, " bytes from step ",
                        e.first_step);
  }
  std::string operator()(const adapt::AskShared& e) const {
    return absl::StrCat("chunk ", e.chunk, " from step ", e.first_step,
                        e.shared ? ": comes by another load" : ": has an ask of its own");
  }
  std::string operator()(const adapt::StepLoaded& e) const {
    return absl::StrCat("loaded: chunk ", e.chunk, " up to step ", e.step);
  }
  std::string operator()(const adapt::StepFailed& e) const {
    return absl::StrCat("failed: chunk ", e.chunk, " step ", e.step,
                        e.may_retry ? "" : ", for good");
  }
  std::string operator()(const adapt::ChunksComputed& e) const {
    return absl::StrCat("the engine has computed ", e.num_chunks, " chunks");
  }
  std::string operator()(const adapt::LinkLost& e) const {
    return e.reconnecting ? "the link is lost, and opened again" : "the link is lost";
  }
  std::string operator()(const adapt::LinkRestored&) const { return "the link is back"; }
  std::string operator()(const adapt::Tick& e) const {
    const adapt::LinkView& link = e.link;
    return absl::StrFormat(
        "time passed: link %.3g (%.3g) MB/s, round trip %d us%s, computing x%.3g",
        link.bytes_per_s * 1e-6, link.mean_bytes_per_s * 1e-6, link.rtt_us,
        link.stalled ? ", stalled" : "", e.pace.scale);
  }
  std::string operator()(const adapt::GrantBase&) const { return "room for a base"; }
  std::string operator()(const adapt::GrantRefinement&) const { return "room for a refinement"; }
  std::string operator()(const adapt::Demoted& e) const {
    return e.demoted ? "other loads go first" : "in its turn again";
  }
};

}  // namespace

void EventLog::Add(adapt::TimeUs at_us, const adapt::Event& event, const adapt::Actions& actions) {
  if (over_) return;
  over_ = actions.finished;
  const uint64_t bytes = sizeof(RecordedEvent) + MemoryOf(actions);
  // A log with a hole could not be replayed: from the first event that does not fit, none is kept.
  if (omitted_events_ > 0 || bytes_ + bytes > max_bytes_) {
    ++omitted_events_;
    return;
  }
  bytes_ += bytes;
  events_.push_back({at_us, event, actions});
}

std::optional<ReplayDifference> Replay(const LoadRecord& record) {
  adapt::LoadPlanner planner(record.spec);
  std::set<uint32_t> loaded;
  for (size_t i = 0; i < record.events.size(); ++i) {
    const RecordedEvent& recorded = record.events[i];
    adapt::Actions decided = planner.Apply(recorded.event, recorded.at_us);
    if (decided != recorded.actions) {
      return ReplayDifference{i, std::move(decided),
                              absl::StrCat("event ", i, " (", DescribeEvent(recorded.event),
                                           ") is recorded with other decisions")};
    }
    loaded.insert(decided.loaded.begin(), decided.loaded.end());
  }
  if (record.omitted_events > 0) return std::nullopt;
  for (const ChunkOutcome& outcome : record.outcomes) {
    if (outcome.reason != RecomputeReason::kNone) continue;
    if (loaded.contains(outcome.chunk_index - record.first_chunk)) continue;
    return ReplayDifference{record.events.size(),
                            {},
                            absl::StrCat("chunk ", outcome.chunk_index,
                                         " is recorded as loaded, but no decision says so")};
  }
  return std::nullopt;
}

std::string DescribeEvent(const adapt::Event& event) { return std::visit(EventText(), event); }

std::vector<std::string> DescribeActions(const adapt::Actions& actions) {
  std::vector<std::string> lines;
  const auto add = [&lines](std::string what, std::string_view reason) {
    lines.push_back(absl::StrCat(what, ": ", std::string(reason)));
  };
  for (const adapt::Cancel& cancel : actions.cancels) {
    add(absl::StrCat("take back chunk ", cancel.chunk, " from step ", cancel.first_step),
        cancel.reason);
  }
  for (const adapt::GiveUp& give_up : actions.give_ups) {
    add(absl::StrCat("give up chunk ", give_up.chunk), give_up.reason);
  }
  for (const adapt::Close& close : actions.closes) {
    add(absl::StrCat("refine chunk ", close.chunk, " no more"), close.reason);
  }
  for (const adapt::Ask& ask : actions.asks) {
    add(absl::StrCat("ask for chunk ", ask.chunk, " ", Steps(ask.first_step, ask.last_step), ", ",
                     ask.bytes, " bytes"),
        ask.reason);
  }
  if (actions.compute.has_value()) {
    add(absl::StrCat("compute chunk ", actions.compute->chunk), actions.compute->reason);
  }
  for (const uint32_t chunk : actions.loaded) lines.push_back(absl::StrCat("done: chunk ", chunk));
  if (actions.finished) lines.emplace_back("the load is over");
  return lines;
}

}  // namespace sluice::client
