// sluice ping: is the server there, how far away, and what does it speak?
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/options.h"
#include "client/cli/statistics.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/remote_store.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice ping
  sluice ping --server 10.0.0.7:7420 -c 100)";

struct Options {
  ServerOptions server;
  uint32_t count = 5;
  bool json = false;
};

absl::StatusOr<ExitCode> Ping(const Options& options) {
  const std::string& address = options.server.address;
  const auto admin = client::RemoteAdmin::Create(address);
  const absl::Time begin = absl::Now();
  auto first = admin->Ping(options.server.Deadline());  // connects, and is not counted
  if (!first.ok()) return ExplainUnreachable(first.status(), address);
  const double connect_ms = absl::ToDoubleMilliseconds(absl::Now() - begin);
  std::vector<double> ms;
  for (uint32_t i = 0; i < options.count; ++i) {
    ASSIGN_OR_RETURN(const absl::Duration took, admin->Ping(options.server.Deadline()));
    ms.push_back(absl::ToDoubleMilliseconds(took));
  }
  const auto store = client::RemoteStore::Create(address);
  ASSIGN_OR_RETURN(const auto capabilities, store->GetCapabilities(options.server.Deadline()));
  const double min = Percentile(ms, 0), p50 = Percentile(ms, 50), p99 = Percentile(ms, 99);
  if (options.json) {
    PrintJson({{"server", capabilities.server},
               {"container_version", capabilities.container_version},
               {"max_chunk_bytes", capabilities.max_chunk_bytes},
               {"count", ms.size()},
               {"connect_ms", connect_ms},
               {"min_ms", min},
               {"p50_ms", p50},
               {"p99_ms", p99}});
    return kOk;
  }
  PrintPairs({{"server", absl::StrCat(capabilities.server, " at ", address)},
              {"container version", absl::StrCat(capabilities.container_version)},
              {"connect", FormatMs(connect_ms)},
              {"round trip", absl::StrCat("min ", FormatMs(min), ", p50 ", FormatMs(p50), ", p99 ",
                                          FormatMs(p99), " of ", ms.size())}});
  return kOk;
}

}  // namespace

void AddPing(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      AddCommand(app, run, "ping", "Measure the round trip to a server", kExamples, options, Ping);
  sub->add_option("-c,--count", options->count, "Round trips")
      ->check(WholeWithin(1, 100'000))
      ->capture_default_str();
  AddServer(*sub, options->server);
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
