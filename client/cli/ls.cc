// sluice ls: what a server has.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/options.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

using client::ChunkInfo;
using client::NamespaceInfo;

constexpr char kExamples[] = R"(Examples:
  sluice ls
  sluice ls --server 10.0.0.7:7420 3fa9
  sluice ls --json my-model | jq .chunks
NAMESPACE is the start of a digest, or a model's name.)";

constexpr size_t kShownDigits = 16;
constexpr size_t kProfileDigits = 12;

struct Options {
  ServerOptions server;
  std::string name;
  bool json = false;
};

Json ToJson(const NamespaceInfo& info) {
  return {{"namespace", codec::DigestHex(info.namespace_digest)},
          {"model", info.descriptor.model},
          {"revision", info.descriptor.revision},
          {"adapter", info.descriptor.adapter},
          {"tenant", info.descriptor.tenant},
          {"salt", info.descriptor.salt},
          {"chunk_tokens", info.descriptor.chunk_tokens},
          {"profile_id", codec::DigestHex(info.descriptor.profile_id)},
          {"chunks", info.chunks},
          {"bytes", info.bytes}};
}

Json ToJson(const ChunkInfo& chunk) {
  return {{"chunk_key", codec::DigestHex(chunk.chunk_key)},
          {"start_token", chunk.start_token},
          {"num_tokens", chunk.num_tokens},
          {"bytes", chunk.bytes},
          {"idle_ms", chunk.idle_ms},
          {"pinned", chunk.pinned},
          {"lossy_levels", chunk.lossy_levels},
          {"lossless", chunk.lossless}};
}

void PrintNamespaces(const std::vector<NamespaceInfo>& all) {
  Table table({{"namespace", Align::kLeft},
               {"model", Align::kLeft},
               {"revision", Align::kLeft},
               {"tenant", Align::kLeft},
               {"profile", Align::kLeft},
               {"chunk tokens"},
               {"chunks"},
               {"bytes"}});
  for (const NamespaceInfo& info : all) {
    table.Add({codec::DigestHex(info.namespace_digest).substr(0, kShownDigits),
               info.descriptor.model, info.descriptor.revision.substr(0, kShownDigits),
               info.descriptor.tenant,
               codec::DigestHex(info.descriptor.profile_id).substr(0, kProfileDigits),
               absl::StrCat(info.descriptor.chunk_tokens), FormatCount(info.chunks),
               FormatBytes(info.bytes)});
  }
  table.Print();
}

void PrintChunks(const std::vector<ChunkInfo>& chunks) {
  Table table({{"chunk", Align::kLeft},
               {"start"},
               {"tokens"},
               {"bytes"},
               {"levels", Align::kLeft},
               {"idle"},
               {"pinned", Align::kLeft}});
  for (const ChunkInfo& chunk : chunks) {
    table.Add({codec::DigestHex(chunk.chunk_key), absl::StrCat(chunk.start_token),
               absl::StrCat(chunk.num_tokens), FormatBytes(chunk.bytes),
               absl::StrCat(chunk.lossy_levels, chunk.lossless ? " + lossless" : ""),
               FormatAge(chunk.idle_ms), chunk.pinned ? "yes" : "no"});
  }
  table.Print();
}

absl::StatusOr<std::vector<ChunkInfo>> ListAll(client::RemoteAdmin& admin,
                                               const codec::Digest& digest,
                                               const ServerOptions& server) {
  std::vector<ChunkInfo> all;
  std::optional<codec::Digest> after;
  do {
    ASSIGN_OR_RETURN(client::ChunkPage page, admin.ListChunks(digest, 0, after, server.Deadline()));
    all.insert(all.end(), page.chunks.begin(), page.chunks.end());
    after = page.chunks.empty() ? std::nullopt : page.next_after;
  } while (after);
  std::ranges::stable_sort(all, {}, &ChunkInfo::start_token);
  return all;
}

absl::StatusOr<ExitCode> Ls(const Options& options) {
  const auto admin = client::RemoteAdmin::Create(options.server.address);
  Json json;
  Json list = Json::array();
  if (options.name.empty()) {
    auto all = admin->ListNamespaces(options.server.Deadline());
    if (!all.ok()) return ExplainUnreachable(all.status(), options.server.address);
    for (const NamespaceInfo& info : *all) list.push_back(ToJson(info));
    json["namespaces"] = list;
    if (!options.json) PrintNamespaces(*all);
  } else {
    ASSIGN_OR_RETURN(const NamespaceInfo info,
                     ResolveNamespace(*admin, options.name, options.server.Deadline()));
    ASSIGN_OR_RETURN(const auto chunks, ListAll(*admin, info.namespace_digest, options.server));
    for (const ChunkInfo& chunk : chunks) list.push_back(ToJson(chunk));
    json = ToJson(info);
    json["chunks"] = list;
    if (!options.json) PrintChunks(chunks);
  }
  if (options.json) PrintJson(json);
  return kOk;
}

}  // namespace

void AddLs(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      AddCommand(app, run, "ls", "List namespaces, or the chunks of one", kExamples, options, Ls);
  sub->add_option("NAMESPACE", options->name, "List its chunks");
  AddServer(*sub, options->server);
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
