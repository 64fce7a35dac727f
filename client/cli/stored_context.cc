#include "client/cli/stored_context.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/failure.h"
#include "client/cli/fetch_load.h"
#include "client/cli/fetch_plan.h"
#include "client/cli/units.h"
#include "client/file_io.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr size_t kDigestDigits = 16;
constexpr size_t kSniffedBytes = 64;
// A safetensors file: eight bytes of a length, then a JSON object.
constexpr size_t kSafetensorsHeaderAt = 8;
constexpr uint32_t kLoadMs = 3'600'000;

// Are all chunks there, with the lossless level? What is to be loaded may be large.
absl::Status CheckStored(const FetchPlan& plan, const ServerOptions& server) {
  const codec::Digest digest = codec::NamespaceDigest(plan.descriptor);
  const auto keys = codec::ChunkKeys(digest, plan.token_ids, plan.descriptor.chunk_tokens);
  const auto manifests =
      client::RemoteStore::Create(server.address)->Lookup(digest, keys, server.Deadline(), nullptr);
  if (!manifests.ok()) return ExplainUnreachable(manifests.status(), server.address);
  const std::string whose = codec::DigestHex(digest).substr(0, kDigestDigits);
  const auto missing = std::ranges::count_if(*manifests, [](const auto& m) { return !m.found; });
  if (missing > 0) {
    return WithHint(
        absl::FailedPreconditionError(
            absl::StrCat(missing, " of ", FormatCount(keys.size(), "chunk"),
                         missing == 1 ? " is" : " are", " not stored in namespace ", whose)),
        absl::StrCat("store the whole context: sluice put --lossless --server ", server.address));
  }
  const auto lossy = std::ranges::count_if(
      *manifests, [](const auto& m) { return m.layers.back().level != codec::kLossless; });
  if (lossy == 0) return absl::OkStatus();
  return WithHint(absl::FailedPreconditionError(absl::StrCat(
                      lossy, " of ", FormatCount(keys.size(), "chunk"), lossy == 1 ? " is" : " are",
                      " stored without the lossless level, so the exact values are not there")),
                  absl::StrCat("remove them, sluice rm --server ", server.address, " ", whose,
                               ", and store them again with sluice put --lossless"));
}

absl::StatusOr<client::ContextPlanes> Load(const FetchOptions& options) {
  ASSIGN_OR_RETURN(const FetchPlan plan, PlanFetch(options));
  RETURN_IF_ERROR(CheckStored(plan, options.server));
  const uint32_t num_tokens = plan.num_chunks() * plan.descriptor.chunk_tokens;
  ASSIGN_OR_RETURN(client::ContextPlanes planes,
                   client::ContextPlanes::CreateOnDisk(plan.profile->geometry(), num_tokens));
  const client::LoadResult result = LoadFromServer(options, plan, planes);
  for (const client::ChunkOutcome& outcome : result.outcomes) {
    if (outcome.reason == client::RecomputeReason::kNone) continue;
    const std::string what = absl::StrCat("chunk ", outcome.chunk_index, ": ",
                                          std::string(client::RecomputeReasonName(outcome.reason)),
                                          outcome.message.empty() ? "" : ": ", outcome.message);
    if (outcome.reason == client::RecomputeReason::kDamaged) return absl::DataLossError(what);
    return ExplainUnreachable(absl::UnavailableError(what), options.server.address);
  }
  if (const size_t rest = plan.token_ids.size() - num_tokens; rest > 0) {
    Note(absl::StrCat(options.tokens_file, ": the last ", rest,
                      " tokens make no full chunk and are never stored"));
  }
  return planes;
}

}  // namespace

bool IsTokensFile(const std::string& path) {
  const std::string head = client::ReadHead(path, kSniffedBytes);
  if (head.size() > kSafetensorsHeaderAt && head[kSafetensorsHeaderAt] == '{') return false;
  const auto begin =
      std::ranges::find_if_not(head, [](unsigned char c) { return std::isspace(c) != 0; });
  return begin != head.end() &&
         (*begin == '[' || std::isdigit(static_cast<unsigned char>(*begin)) != 0);
}

absl::StatusOr<client::ContextPlanes> LoadStored(const StoreOptions& options,
                                                 const std::string& path) {
  FetchOptions fetch;
  fetch.server = options.server;
  fetch.name_space = options.name_space;
  fetch.identity = options.identity;
  fetch.tokens_file = path;
  fetch.level = codec::kLossless;
  fetch.slo_ms = kLoadMs;
  auto planes = Load(fetch);
  if (!planes.ok()) return WithPrefix(planes.status(), path);
  return planes;
}

}  // namespace sluice::cli
