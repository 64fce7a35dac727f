// The command-line tool: every step of storing and loading KV caches by hand.
#include <cstdio>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"

namespace sluice::cli {
namespace {

constexpr char kFooter[] = R"(Every command has --help with examples.

Exit codes:
  0  ok
  1  failure
  2  bad usage or input
  3  server or daemon unreachable
  4  partial: some chunks must be recomputed
  5  damaged data)";

int Main(int argc, char** argv) {
  CLI::App app{"Stores and loads KV caches at several quality levels.", "sluice"};
  app.footer(kFooter);
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(1);
  Run run;
  for (auto add : {AddEncode, AddDecode, AddInspect, AddPut, AddFetch, AddLs, AddRm, AddPin,
                   AddStats, AddPing, AddBench}) {
    add(app, run);
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
