// sluice stats: counters of a server or of a node daemon.
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/node_commands.h"
#include "client/cli/options.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice stats
  sluice stats --json --server 10.0.0.7:7420
  sluice stats --node /run/sluice/node.sock)";

struct Options {
  ServerOptions server;
  std::string node;
  bool json = false;
};

Json ToJson(const client::ServerStats& stats) {
  return {{"uptime_ms", stats.uptime_ms},
          {"namespaces", stats.namespaces},
          {"chunks", stats.chunks},
          {"disk_bytes", stats.disk_bytes},
          {"disk_quota_bytes", stats.disk_quota_bytes},
          {"cache_bytes", stats.cache_bytes},
          {"cache_limit_bytes", stats.cache_limit_bytes},
          {"cache_hits", stats.cache_hits},
          {"cache_misses", stats.cache_misses},
          {"lookup_keys", stats.lookup_keys},
          {"lookup_found", stats.lookup_found},
          {"fetch_streams", stats.fetch_streams},
          {"sent_bytes", stats.sent_bytes},
          {"received_bytes", stats.received_bytes},
          {"committed_chunks", stats.committed_chunks},
          {"evicted_chunks", stats.evicted_chunks},
          {"damaged", stats.damaged},
          {"uploads", stats.uploads},
          {"profiles", stats.profiles},
          {"profile_bytes", stats.profile_bytes},
          {"profile_quota_bytes", stats.profile_quota_bytes}};
}

std::string Share(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return absl::StrCat(FormatNumber(100.0 * static_cast<double>(part) / static_cast<double>(whole)),
                      " %");
}

void PrintText(const client::ServerStats& stats) {
  PrintPairs({
      {"up", FormatAge(stats.uptime_ms)},
      {"stored", absl::StrCat(FormatCount(stats.chunks, "chunk"), " in ",
                              FormatCount(stats.namespaces, "namespace"))},
      {"disk",
       absl::StrCat(FormatBytes(stats.disk_bytes), " of ", FormatBytes(stats.disk_quota_bytes),
                    " (", Share(stats.disk_bytes, stats.disk_quota_bytes), ")")},
      {"profiles", absl::StrCat(FormatCount(stats.profiles), ", ", FormatBytes(stats.profile_bytes),
                                " of ", FormatBytes(stats.profile_quota_bytes))},
      {"cache",
       absl::StrCat(FormatBytes(stats.cache_bytes), " of ", FormatBytes(stats.cache_limit_bytes),
                    "; hits ", Share(stats.cache_hits, stats.cache_hits + stats.cache_misses))},
      {"lookups", absl::StrCat(FormatCount(stats.lookup_keys, "key"), ", found ",
                               Share(stats.lookup_found, stats.lookup_keys))},
      {"sent", FormatBytes(stats.sent_bytes)},
      {"received", FormatBytes(stats.received_bytes)},
      {"committed", FormatCount(stats.committed_chunks, "chunk")},
      {"evicted", FormatCount(stats.evicted_chunks, "chunk")},
      {"damaged", FormatCount(stats.damaged)},
      {"open now",
       absl::StrCat(stats.fetch_streams, " fetch streams, ", stats.uploads, " uploads")},
  });
}

absl::StatusOr<ExitCode> Stats(const Options& options) {
  if (!options.node.empty()) {
    return NodeStats(options.node, options.server.timeout_s, options.json);
  }
  const auto admin = client::RemoteAdmin::Create(options.server.address);
  auto stats = admin->Stats(options.server.Deadline());
  if (!stats.ok()) return ExplainUnreachable(stats.status(), options.server.address);
  if (options.json) {
    PrintJson(ToJson(*stats));
  } else {
    PrintText(*stats);
  }
  return kOk;
}

}  // namespace

void AddStats(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      AddCommand(app, run, "stats", "Show a server's counters", kExamples, options, Stats);
  AddServer(*sub, options->server);
  sub->add_option("-n,--node", options->node, "Show the daemon's at this socket instead")
      ->excludes("--server");
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
