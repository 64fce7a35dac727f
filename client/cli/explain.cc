// sluice explain: what was known, decided and why, in the record of a load.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/load_report.h"
#include "client/cli/load_timeline.h"
#include "client/cli/options.h"
#include "client/cli/units.h"
#include "client/file_io.h"
#include "client/load_record_file.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice explain slow.load
  sluice explain --replay slow.load | less
  sluice explain --json slow.load | jq .advice
Records are written by sluice fetch --record, sluice simulate --record, and by the daemon
(node.record_dir). Times count from the start of the load. Of each chunk the table tells when its
smallest level was asked for, was here whole, and when its finest level was loaded; asks are those
for the smallest level + refinements. The planner is asked to decide again upon the recorded events:
if it decides otherwise than recorded, the exit code is 1.)";

constexpr size_t kTextColumns = 60, kJsonColumns = 100;

struct Options {
  std::string file;
  bool json = false, replay = false;
};

// Every event that something followed from, with what was decided upon it.
void PrintDecisions(const client::LoadRecord& record) {
  for (const client::RecordedEvent& recorded : record.events) {
    if (recorded.actions.empty()) continue;
    const double ms = static_cast<double>(recorded.at_us - record.spec.start_us) * 1e-3;
    std::printf("%10.3f ms  %s\n", ms, client::DescribeEvent(recorded.event).c_str());
    for (const std::string& line : client::DescribeActions(recorded.actions)) {
      std::printf("%15s-> %s\n", "", Printable(line).c_str());
    }
  }
  std::printf("\n");
}

std::string VerdictText(const client::LoadRecord& record,
                        const std::optional<client::ReplayDifference>& difference) {
  if (difference.has_value()) return absl::StrCat("replay differs: ", difference->what);
  if (!record.planned()) return "replay: nothing was decided";
  std::string text = absl::StrCat("replay: all decisions follow from the ",
                                  FormatCount(record.events.size(), "event"));
  if (record.omitted_events > 0) {
    absl::StrAppend(&text, "; the load was too long to be kept whole, ",
                    FormatCount(record.omitted_events, "later event"), " are missing");
  }
  return text;
}

void PrintText(const Options& options, const client::LoadRecord& record,
               const std::optional<client::ReplayDifference>& difference) {
  PrintPairs(SummaryOf(record));
  std::printf("\n");
  if (options.replay) PrintDecisions(record);
  if (record.planned()) {
    ChunkTable(record).Print();
    std::printf("\n%s\n", TimelineText(MakeTimeline(record, nullptr, kTextColumns)).c_str());
  }
  if (const std::string advice = Advice(record); !advice.empty()) {
    std::printf("%s\n", Printable(advice).c_str());
  }
  std::printf("%s\n", VerdictText(record, difference).c_str());
}

absl::StatusOr<ExitCode> Explain(const Options& options) {
  ASSIGN_OR_RETURN(const std::string bytes,
                   client::ReadFile(options.file, client::kMaxRecordBytes));
  const absl::StatusOr<client::LoadRecord> record = client::ParseRecord(bytes);
  if (!record.ok()) return WithPrefix(record.status(), options.file);
  const std::optional<client::ReplayDifference> difference = client::Replay(*record);
  if (options.json) {
    Json json = ToJson(*record);
    json["replay"] = {{"same", !difference.has_value()},
                      {"difference", difference ? Json(difference->what) : Json()}};
    if (record->planned()) {
      json["timeline"] = ToJson(MakeTimeline(*record, nullptr, kJsonColumns));
    }
    PrintJson(json);
  } else {
    PrintText(options, *record, difference);
  }
  if (difference.has_value()) {
    return WithHint(absl::InternalError(absl::StrCat("replay differs: ", difference->what)),
                    "was it recorded by another version?");
  }
  return kOk;
}

}  // namespace

void AddExplain(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = AddCommand(app, run, "explain", "Explain the decisions of a recorded load",
                             kExamples, options, Explain);
  sub->add_option("FILE", options->file, "Record of a load")->required();
  sub->add_flag("--replay", options->replay,
                "Print every decision with the event it followed from; steps are the "
                "levels of the load, from 0");
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
