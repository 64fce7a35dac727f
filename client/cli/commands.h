// The commands. Each Add function describes a subcommand to the parser; when it is the one that was
// given, `run` becomes what it does.
#pragma once

#include <functional>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/cli/failure.h"

namespace sluice::cli {

// Does the work; an error is reported by the caller.
using Run = std::function<absl::StatusOr<ExitCode>()>;

void AddCalibrate(CLI::App& app, Run& run);
void AddEncode(CLI::App& app, Run& run);
void AddDecode(CLI::App& app, Run& run);
void AddInspect(CLI::App& app, Run& run);
void AddPut(CLI::App& app, Run& run);
void AddFetch(CLI::App& app, Run& run);
void AddLs(CLI::App& app, Run& run);
void AddRm(CLI::App& app, Run& run);
void AddPin(CLI::App& app, Run& run);
void AddStats(CLI::App& app, Run& run);
void AddPing(CLI::App& app, Run& run);
void AddBench(CLI::App& app, Run& run);
void AddExplain(CLI::App& app, Run& run);
void AddSimulate(CLI::App& app, Run& run);
void AddProfileCommands(CLI::App& app, Run& run);

// Adds a subcommand that runs `command(*options)`. `options` lives as long as the parser.
template <typename Options>
CLI::App* AddCommand(CLI::App& app, Run& run, const char* name, const char* what,
                     const char* examples, std::shared_ptr<Options> options,
                     absl::StatusOr<ExitCode> (*command)(const Options&)) {
  CLI::App* sub = app.add_subcommand(name, what);
  sub->footer(examples);
  sub->callback(
      [&run, options, command] { run = [options, command] { return command(*options); }; });
  return sub;
}

}  // namespace sluice::cli
