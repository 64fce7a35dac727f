// The command-line tool: every step of storing and loading KV caches by hand.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "spdlog/spdlog.h"

namespace sluice::cli {
namespace {

constexpr size_t kMaxWordBytes = 256;
constexpr size_t kMaxTypos = 2;

constexpr char kFooter[] = R"(Every command has --help with examples.

Exit codes:
  0  ok
  1  failure
  2  bad usage or input
  3  server or daemon unreachable
  4  partial: some chunks must be recomputed
  5  damaged data)";

// Changes of one character between two words.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// What is wrong with the word after `prefix`; empty if it is a command of `app` or an option. The
// parser would say only that a command is missing.
std::string CommandFault(const CLI::App& app, const std::string& prefix, const std::string& word) {
  if (word.size() > kMaxWordBytes) return "the first argument is not a command";
  if (word.starts_with('-')) {
    if (app.get_option_no_throw(word) != nullptr) return "";
    return absl::StrCat("unknown option '", word, "'; options of a command follow its name");
  }
  std::string names, nearest;
  size_t least = kMaxTypos + 1;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string name = command->get_name();
    if (name == word) return "";
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
    const size_t distance = Distance(word, name);
    if (distance < least && distance < name.size()) {
      least = distance;
      nearest = absl::StrCat("did you mean '", prefix, name, "'? ");
    }
  }
  return absl::StrCat("unknown command '", prefix, word, "'; ", nearest, "commands: ", names);
}

int Main(int argc, char** argv) {
  CLI::App app{"Stores and loads KV caches at several quality levels.", "sluice"};
  app.footer(kFooter);
  app.set_version_flag("-v,--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(1);
  spdlog::set_level(spdlog::level::off);  // the library's log lines are for daemons
  Run run;
  for (auto add :
       {AddCalibrate, AddProfileCommands, AddEncode, AddDecode, AddInspect, AddPut, AddFetch,
        AddExplain, AddSimulate, AddLs, AddRm, AddPin, AddStats, AddPing, AddBench}) {
    add(app, run);
  }
  std::string prefix;
  const CLI::App* commands = &app;
  for (int i = 1; i < argc && !commands->get_subcommands({}).empty(); ++i) {
    if (const std::string fault = CommandFault(*commands, prefix, argv[i]); !fault.empty()) {
      ReportUsage(fault, absl::StrCat("try: sluice ", prefix, "--help"));
      return kUsage;
    }
    if (argv[i][0] == '-') break;
    absl::StrAppend(&prefix, argv[i], " ");
    commands = commands->get_subcommand(argv[i]);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    const auto given = app.get_subcommands();
    const std::string command = given.empty() ? "" : " " + given.front()->get_name();
    ReportUsage(error.what(), absl::StrCat("try: sluice", command, " --help"));
    return kUsage;
  }
  const absl::StatusOr<ExitCode> code = run();
  if (!code.ok()) return ReportFailure(code.status());
  if (std::fflush(stdout) != 0) return ReportFailure(absl::InternalError("cannot write to stdout"));
  return *code;
}

}  // namespace
}  // namespace sluice::cli

int main(int argc, char** argv) { return sluice::cli::Main(argc, argv); }
