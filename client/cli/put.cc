// sluice put: stores a context on a server, directly or through the node daemon.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/node_commands.h"
#include "client/cli/options.h"
#include "client/cli/progress.h"
#include "client/cli/source.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/remote_store.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice put cache.safetensors
  sluice put --server 10.0.0.7:7420 --lossless --tenant alice cache.safetensors
  sluice put cache.sluice
  sluice put --profile my-model.profile cache.safetensors
  sluice put --node /run/sluice/node.sock cache.safetensors
Only full chunks are stored; a chunk that is there already is not sent again.)";

constexpr size_t kDigestDigits = 16;

struct Options {
  SourceOptions source;
  ServerOptions server;
  std::string node;
  bool json = false;
};

struct PutChunk {
  uint64_t sent_bytes = 0;  // of the container
  bool already_stored = false;
  double ms = 0;
};

absl::StatusOr<std::vector<PutChunk>> PutAll(client::RemoteStore& store, const Source& source,
                                             const ServerOptions& server) {
  const codec::ContextFile& file = source.file;
  const auto keys = codec::ChunkKeys(codec::NamespaceDigest(file.descriptor), file.token_ids,
                                     file.descriptor.chunk_tokens);
  std::vector<PutChunk> chunks;
  Progress progress("storing chunks", file.containers.size());
  for (size_t i = 0; i < file.containers.size(); ++i) {
    std::optional<codec::Digest> parent;
    if (i > 0) parent = keys[i - 1];
    const absl::Time start = absl::Now();
    auto put = client::PutWithProfile(
        store, {file.descriptor, keys[i], parent, file.containers[i]},
        [&] { return ProfileBytes(source); }, {.chunk = absl::Seconds(server.timeout_s)}, nullptr);
    if (!put.ok()) {
      return WithPrefix(ExplainUnreachable(put.status(), server.address),
                        absl::StrCat("chunk ", i, " of ", file.containers.size()));
    }
    chunks.push_back({.sent_bytes = put->sent_bytes,
                      .already_stored = put->already_stored,
                      .ms = absl::ToDoubleMilliseconds(absl::Now() - start)});
    progress.Update(i + 1);
  }
  return chunks;
}

// An error if chunks of the source have a lossless level that the server's do not have: what is
// stored already is not replaced.
absl::Status CheckLossless(client::RemoteStore& store, const Source& source,
                           const std::vector<PutChunk>& chunks, const ServerOptions& server) {
  const codec::ContextFile& file = source.file;
  const codec::Digest digest = codec::NamespaceDigest(file.descriptor);
  const auto keys = codec::ChunkKeys(digest, file.token_ids, file.descriptor.chunk_tokens);
  std::vector<codec::Digest> asked;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].already_stored && HasLossless(file.containers[i])) asked.push_back(keys[i]);
  }
  if (asked.empty()) return absl::OkStatus();
  const auto manifests = store.Lookup(digest, asked, server.Deadline(), nullptr);
  if (!manifests.ok()) return ExplainUnreachable(manifests.status(), server.address);
  const auto lacking = std::ranges::count_if(*manifests, [](const client::ChunkManifest& chunk) {
    return chunk.found && chunk.layers.back().level != codec::kLossless;
  });
  if (lacking == 0) return absl::OkStatus();
  return WithHint(absl::FailedPreconditionError(absl::StrCat(FormatCount(lacking, "chunk"),
                                                             lacking == 1 ? " is" : " are",
                                                             " stored without the lossless level")),
                  absl::StrCat("remove them first: sluice rm --server ", server.address, " ",
                               codec::DigestHex(digest).substr(0, kDigestDigits)));
}

void PrintChunks(const std::vector<PutChunk>& chunks, uint32_t chunk_tokens) {
  Table table({{"chunk"}, {"tokens", Align::kLeft}, {"sent"}, {"time"}, {"result", Align::kLeft}});
  for (size_t i = 0; i < chunks.size(); ++i) {
    table.Add({absl::StrCat(i), absl::StrCat(i * chunk_tokens, "-", (i + 1) * chunk_tokens - 1),
               FormatBytes(chunks[i].sent_bytes), FormatMs(chunks[i].ms),
               chunks[i].already_stored ? "already stored" : "stored"});
  }
  table.Print();
}

void PrintChunksJson(const std::vector<PutChunk>& chunks, const Source& source,
                     const std::string& digest, uint64_t sent_bytes) {
  Json list = Json::array();
  for (const PutChunk& chunk : chunks) {
    list.push_back({{"sent_bytes", chunk.sent_bytes},
                    {"already_stored", chunk.already_stored},
                    {"ms", chunk.ms}});
  }
  const uint32_t chunk_tokens = source.file.descriptor.chunk_tokens;
  PrintJson({{"namespace", digest},
             {"stored_tokens", chunks.size() * chunk_tokens},
             {"left_out_tokens", source.num_tokens - chunks.size() * chunk_tokens},
             {"sent_bytes", sent_bytes},
             {"rate", source.rates.ToJson()},
             {"chunks", list}});
}

absl::StatusOr<ExitCode> Put(const Options& options) {
  if (!options.node.empty()) {
    return PutThroughNode({.socket = options.node,
                           .source = options.source,
                           .timeout_s = options.server.timeout_s,
                           .json = options.json});
  }
  ASSIGN_OR_RETURN(const Source source, OpenSource(options.source, &options.server));
  const auto store = client::RemoteStore::Create(options.server.address);
  ASSIGN_OR_RETURN(const auto chunks, PutAll(*store, source, options.server));
  for (const std::string& note : source.notes) Note(note);
  const std::string digest = codec::DigestHex(codec::NamespaceDigest(source.file.descriptor));
  uint64_t sent_bytes = 0;
  for (const PutChunk& chunk : chunks) sent_bytes += chunk.sent_bytes;
  if (options.json) {
    PrintChunksJson(chunks, source, digest, sent_bytes);
  } else {
    PrintChunks(chunks, source.file.descriptor.chunk_tokens);
    std::printf("%s, %s sent; namespace %s\n", FormatCount(chunks.size(), "chunk").c_str(),
                FormatBytes(sent_bytes).c_str(), digest.c_str());
  }
  RETURN_IF_ERROR(CheckLossless(*store, source, chunks, options.server));
  return kOk;
}

}  // namespace

void AddPut(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      AddCommand(app, run, "put", "Store a cache file or a .sluice file", kExamples, options, Put);
  sub->add_option("IN", options->source.path, "Cache (safetensors) or encoded context (.sluice)")
      ->required();
  AddServer(*sub, options->server);
  sub->add_option("-n,--node", options->node, "Store through the daemon at this socket")
      ->excludes("--server");
  AddProfile(*sub, options->source.profile);
  sub->add_flag("--lossless", options->source.lossless, "Store a bit-exact level too");
  AddIdentity(*sub, options->source.identity);
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
