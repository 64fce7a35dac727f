// sluice inspect: what is in a file, and whether all of it is intact.
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/inspect_report.h"
#include "client/cli/options.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/file_io.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice inspect cache.sluice
  sluice inspect --json cache.sluice | jq .level_bytes
FILE is a .sluice file, one chunk's container, or a profile. All checksums are verified; the exit
code is 5 if one does not match.)";

struct Options {
  std::string file;
  bool json = false;
};

std::vector<std::string> LevelCells(const LevelBytes& levels, uint64_t elements) {
  std::string bytes, bits;
  for (const auto& [level, level_bytes] : levels) {
    const char* gap = bytes.empty() ? "" : " / ";
    absl::StrAppend(&bytes, gap, FormatBytes(level_bytes));
    absl::StrAppend(&bits, gap, elements == 0 ? "-" : FormatNumber(8.0 * level_bytes / elements));
  }
  return {bytes, bits};
}

// Of which layers a level is made.
std::string LayersText(codec::Level level) {
  if (level == codec::kLossless) return "its own layer alone";
  return level == 0 ? "layer 0" : absl::StrCat("layers 0-", +level);
}

std::string StateText(const InspectedChunk& chunk) {
  if (!chunk.fault.empty()) return chunk.fault;
  return chunk.unusual_rate ? "intact, unusual rate" : "intact";
}

void PrintText(const InspectReport& report) {
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"file",
       absl::StrCat(report.path, " (", report.kind, ", ", FormatBytes(report.file_bytes), ")")}};
  for (const auto& pair : report.facts) pairs.push_back(pair);
  PrintPairs(pairs);
  if (!report.chunks.empty()) {
    std::printf("\n");
    Table table({{"chunk"},
                 {"start"},
                 {"tokens"},
                 {"groups"},
                 {"bytes of each level", Align::kLeft},
                 {"bits/element of each", Align::kLeft},
                 {"state", Align::kLeft}});
    for (const InspectedChunk& chunk : report.chunks) {
      const auto cells = LevelCells(chunk.level_bytes, chunk.elements);
      table.Add({absl::StrCat(chunk.index), absl::StrCat(chunk.start_token),
                 absl::StrCat(chunk.num_tokens), absl::StrCat(chunk.num_groups), cells[0], cells[1],
                 StateText(chunk)});
    }
    table.Print();
    std::printf("\n");
    if (!report.faults.empty()) {
      std::printf("totals of the intact chunks only, %zu of %zu:\n",
                  report.chunks.size() - report.faults.size(), report.chunks.size());
    }
    Table levels({{"level", Align::kLeft},
                  {"bytes to load it"},
                  {"bits/element"},
                  {"made of", Align::kLeft}});
    for (const auto& [level, bytes] : report.level_bytes) {
      const bool known = report.elements > 0;
      levels.Add({codec::LevelName(level), FormatBytes(bytes),
                  known ? FormatNumber(8.0 * bytes / report.elements) : "-", LayersText(level)});
    }
    levels.Print();
  }
}

absl::StatusOr<ExitCode> Inspect(const Options& options) {
  ASSIGN_OR_RETURN(const std::string bytes, client::ReadFile(options.file));
  auto report = InspectBytes(bytes);
  if (!report.ok()) return WithPrefix(report.status(), options.file);
  report->path = options.file;
  if (options.json) {
    PrintJson(ToJson(*report));
  } else {
    PrintText(*report);
  }
  if (const auto note = report->rates.Note()) Note(*note);
  if (report->faults.empty()) return kOk;
  return WithHint(absl::DataLossError(absl::StrCat(options.file, ": ", report->faults.front())),
                  absl::StrCat(report->faults.size(), " of ", report->chunks.size(),
                               " chunks damaged; encode or fetch the file again"));
}

}  // namespace

void AddInspect(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      AddCommand(app, run, "inspect", "Show and verify a file", kExamples, options, Inspect);
  sub->add_option("FILE", options->file, "File to look at")->required();
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
