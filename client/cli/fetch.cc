// sluice fetch: loads a context within a time limit, as an engine does, into a cache file.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/check.h"
#include "client/cli/commands.h"
#include "client/cli/fetch_load.h"
#include "client/cli/fetch_plan.h"
#include "client/cli/json.h"
#include "client/cli/node_commands.h"
#include "client/cli/profiles.h"
#include "client/cli/record.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/load_story.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

using adapt::RecomputeCapability;
using client::ChunkOutcome;
using client::RecomputeReason;
using client::TokenRange;

constexpr char kExamples[] = R"(Examples:
  sluice fetch --like cache.safetensors --slo 500 out.safetensors
  sluice fetch --like cache.safetensors --level lossless --check cache.safetensors out.safetensors
  sluice fetch --tokens ids.json --model my-model --slo 500 out.safetensors
  sluice fetch --like cache.safetensors --slo 500 --record it.load out.safetensors
  sluice fetch --node /run/sluice/node.sock --like cache.safetensors --slo 500 out.safetensors
Chunks to recompute are left out of OUT and named in its metadata (sluice_missing_chunks); the exit
code is then 4. Time is from the start of the load to the chunk's last write, decoding included;
throughput is that of the whole load while the chunk was on its way. Bytes are the chunk's, also
those that the daemon had from a load just before, and those of finer levels that were not finished
in time: "of no use".
--check encodes the original once more: the exit code is 1 if a value is beyond the level's bound,
or beyond twice the largest error of that, as of a chunk of another context.)";

constexpr size_t kMaxOthers = 4;     // namespaces in a hint
constexpr size_t kOtherDigits = 12;  // of their digests
constexpr size_t kLongMessage = 60;  // too long to be told of every chunk

// `told`: the message of the chunk before, which is not told again if it is long.
std::string OutcomeText(const ChunkOutcome& outcome, const std::string& told) {
  if (outcome.reason == RecomputeReason::kNone) return "loaded";
  std::string text =
      absl::StrCat("recompute: ", std::string(client::RecomputeReasonName(outcome.reason)));
  const std::string reason = absl::StrReplaceAll(text, {{"_", " "}, {"recompute: ", ""}});
  if (!outcome.message.empty() && outcome.message != reason) {
    const bool again = outcome.message == told && told.size() > kLongMessage;
    absl::StrAppend(&text, " (", again ? "the same" : outcome.message, ")");
  }
  return text;
}

void PrintOutcomes(const client::LoadResult& result) {
  Table table(
      {{"chunk"}, {"level"}, {"bytes"}, {"time"}, {"throughput"}, {"outcome", Align::kLeft}});
  std::string told;
  for (const ChunkOutcome& outcome : result.outcomes) {
    const bool loaded = outcome.reason == RecomputeReason::kNone;
    table.Add({absl::StrCat(outcome.chunk_index), loaded ? codec::LevelName(outcome.level) : "-",
               FormatBytes(static_cast<double>(outcome.bytes)), FormatMs(outcome.ms),
               FormatRate(outcome.bytes_per_s), OutcomeText(outcome, told)});
    told = outcome.message;
  }
  table.Print();
}

// Known if the load was recorded whole: not of the daemon's.
std::optional<uint64_t> WastedBytes(const client::LoadResult& result) {
  if (result.record == nullptr || result.record->omitted_events > 0) return std::nullopt;
  return client::WastedBytes(*result.record);
}

void PrintTotals(const client::LoadResult& result, size_t loaded, uint64_t wasted) {
  uint64_t bytes = 0;
  for (const ChunkOutcome& outcome : result.outcomes) bytes += outcome.bytes;
  std::printf("%zu of %zu chunks loaded, %s in %s", loaded, result.outcomes.size(),
              FormatBytes(static_cast<double>(std::max(bytes, result.bytes))).c_str(),
              FormatMs(result.ms).c_str());
  if (result.bytes < bytes) {
    std::printf(", of which %s were received now: the daemon had the rest",
                FormatBytes(static_cast<double>(result.bytes)).c_str());
  }
  if (wasted > 0) {
    std::printf(", of which %s were of no use", FormatBytes(static_cast<double>(wasted)).c_str());
  }
  std::printf("\n");
}

Json OutcomesToJson(const client::LoadResult& result) {
  Json chunks = Json::array();
  for (const ChunkOutcome& outcome : result.outcomes) {
    const bool loaded = outcome.reason == RecomputeReason::kNone;
    Json chunk = {{"chunk", outcome.chunk_index}, {"outcome", loaded ? "loaded" : "recompute"}};
    chunk["level"] = loaded ? Json(codec::LevelName(outcome.level)) : Json();
    chunk["reason"] =
        loaded ? Json() : Json(std::string(client::RecomputeReasonName(outcome.reason)));
    chunk["bytes"] = outcome.bytes;
    chunk["ms"] = outcome.ms;
    chunk["bytes_per_s"] = outcome.bytes_per_s;
    chunk["expected_ms"] = outcome.expected_ms;
    chunk["transfer_ms"] = outcome.transfer_ms;
    if (!outcome.message.empty()) chunk["message"] = outcome.message;
    chunks.push_back(chunk);
  }
  return chunks;
}

// Writes the loaded chunks, one after the other.
absl::Status WriteOut(const FetchOptions& options, const FetchPlan& plan, const Fetched& fetched) {
  std::vector<TokenRange> ranges;
  std::vector<uint32_t> missing;
  std::vector<codec::Level> levels;
  const uint32_t chunk_tokens = plan.descriptor.chunk_tokens;
  for (const ChunkOutcome& outcome : fetched.result.outcomes) {
    if (outcome.reason != RecomputeReason::kNone) {
      missing.push_back(outcome.chunk_index);
      continue;
    }
    levels.push_back(outcome.level);
    const uint32_t begin = outcome.chunk_index * chunk_tokens;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end += chunk_tokens;
    } else {
      ranges.push_back({begin, begin + chunk_tokens});
    }
  }
  Metadata metadata = plan.metadata;
  CompleteMetadata(plan.descriptor, plan.profile->geometry(), metadata);
  DescribeTokens(plan.token_ids, ranges, missing, metadata);
  DescribeLevels(levels, metadata);
  return fetched.planes.Save(options.out, ranges, metadata);
}

absl::Status KeepRecord(const FetchOptions& options, const client::LoadResult& result) {
  if (options.record.empty()) return absl::OkStatus();
  if (result.record == nullptr) {
    Note(absl::StrCat("loads of over ", client::kMaxRecordedChunks, " chunks are not recorded"));
    return absl::OkStatus();
  }
  return WriteRecord(options.record, *result.record);
}

// Prints the verdict of --check; true if nothing is wrong.
absl::StatusOr<bool> Check(const client::ContextInput& original, const FetchOptions& options,
                           const FetchPlan& plan, const Fetched& fetched, Json& json) {
  ASSIGN_OR_RETURN(const auto checked,
                   CheckChunks(original, *plan.profile, plan.descriptor.chunk_tokens,
                               fetched.result.outcomes, fetched.planes));
  Json list = Json::array();
  size_t good = 0, doubtful = 0;
  double largest = 0, encoded = 0, bound = 0;
  std::string first_fault;
  for (const CheckedChunk& chunk : checked) {
    good += chunk.fault.empty();
    largest = std::max(largest, chunk.max_error);
    encoded = std::max(encoded, chunk.encoded_error);
    bound = std::max(bound, chunk.bound);
    if (first_fault.empty() && !chunk.fault.empty()) {
      first_fault = absl::StrCat("chunk ", chunk.chunk_index, ", ", chunk.fault);
    }
    if (!chunk.doubt.empty() && doubtful++ == 0) {
      Note(absl::StrCat("chunk ", chunk.chunk_index, " ", chunk.doubt));
    }
    list.push_back({{"chunk", chunk.chunk_index},
                    {"level", codec::LevelName(chunk.level)},
                    {"max_error", chunk.max_error},
                    {"encoded_error", chunk.encoded_error},
                    {"bound", chunk.bound},
                    {"fault", chunk.fault},
                    {"doubt", chunk.doubt}});
  }
  if (doubtful > 1) {
    Note(absl::StrCat("the same holds for ", FormatCount(doubtful - 1, "other chunk")));
  }
  const bool ok = good == checked.size() && doubtful == 0;
  json["check"] = {{"ok", ok}, {"chunks", list}};
  if (!options.json && checked.empty()) {
    std::printf("check: nothing was loaded, so nothing was compared\n");
  } else if (!options.json) {
    std::printf("check: %zu of %zu loaded chunks within the bound; largest error %s", good,
                checked.size(), FormatNumber(largest).c_str());
    std::printf(" (%s if encoded here), bound %s%s%s\n", FormatNumber(encoded).c_str(),
                FormatNumber(bound).c_str(), first_fault.empty() ? "" : "; ", first_fault.c_str());
  }
  return ok;
}

// Nothing answered at all: the server is not there.
bool NothingAnswered(const client::LoadResult& result) {
  return result.bytes == 0 && std::ranges::all_of(result.outcomes, [](const auto& outcome) {
           return outcome.reason == RecomputeReason::kServerUnavailable ||
                  outcome.reason == RecomputeReason::kBreakerOpen;
         });
}

// How a namespace differs from the one that was wanted.
std::string DifferenceText(const codec::NamespaceDescriptor& wanted,
                           const codec::NamespaceDescriptor& other) {
  std::vector<std::string> parts;
  if (other.chunk_tokens != wanted.chunk_tokens) {
    parts.push_back(absl::StrCat("stored with --chunk-tokens ", other.chunk_tokens));
  }
  const auto add = [&](const char* name, const std::string& is, const std::string& was) {
    if (is != was) parts.push_back(absl::StrCat(name, " \"", is, "\""));
  };
  add("revision", other.revision, wanted.revision);
  add("adapter", other.adapter, wanted.adapter);
  add("tenant", other.tenant, wanted.tenant);
  add("salt", other.salt, wanted.salt);
  if (other.profile_id != wanted.profile_id) {
    parts.push_back(absl::StrCat("stored with --profile ",
                                 codec::DigestHex(other.profile_id).substr(0, kOtherDigits)));
  }
  return absl::StrJoin(parts, ", ");
}

// If nothing was stored because the server has no such namespace: what it has of the model.
void NoteOtherNamespaces(const FetchOptions& options, const FetchPlan& plan,
                         const client::LoadResult& result) {
  const auto missing =
      std::ranges::count(result.outcomes, RecomputeReason::kNotStored, &ChunkOutcome::reason);
  if (static_cast<size_t>(missing) != result.outcomes.size()) return;
  absl::StatusOr<ServerOptions> server = options.server;
  if (!options.node.empty()) server = ServerOfNode(options.node, options.server.timeout_s);
  if (!server.ok()) return;  // a hint, not worth an error
  const auto all = client::RemoteAdmin::Create(server->address)->ListNamespaces(server->Deadline());
  if (!all.ok()) return;
  std::vector<std::string> others;
  for (const client::NamespaceInfo& info : *all) {
    if (info.descriptor == plan.descriptor) return;
    if (info.descriptor.model != plan.descriptor.model || others.size() == kMaxOthers) continue;
    std::string other = codec::DigestHex(info.namespace_digest).substr(0, kOtherDigits);
    absl::StrAppend(&other, " (", DifferenceText(plan.descriptor, info.descriptor), ")");
    others.push_back(other);
  }
  const std::string& model = plan.descriptor.model;
  Note(others.empty() ? absl::StrCat("the server has nothing of model \"", model, "\"")
                      : absl::StrCat("the server has no such namespace; of model \"", model,
                                     "\" it has ", absl::StrJoin(others, ", ")));
}

absl::StatusOr<ExitCode> Fetch(const FetchOptions& options) {
  ASSIGN_OR_RETURN(const FetchPlan plan, PlanFetch(options));
  std::optional<client::ContextInput> original;
  if (!options.check.empty()) {  // before anything is loaded in vain
    ASSIGN_OR_RETURN(original, client::ReadContext(options.check));
    const uint32_t num_tokens = plan.num_chunks() * plan.descriptor.chunk_tokens;
    absl::Status same = CheckShapes(*original, *plan.profile, num_tokens);
    if (!same.ok()) return WithPrefix(same, options.check);
  }
  const bool through_node = !options.node.empty();
  ASSIGN_OR_RETURN(const Fetched fetched,
                   through_node ? LoadThroughNode(options, plan) : LoadFromServer(options, plan));
  const auto& outcomes = fetched.result.outcomes;
  RETURN_IF_ERROR(KeepRecord(options, fetched.result));
  if (!through_node && NothingAnswered(fetched.result)) {
    const std::string message = outcomes.empty() ? "" : outcomes.front().message;
    return ExplainUnreachable(absl::UnavailableError(message), options.server.address);
  }
  RETURN_IF_ERROR(WriteOut(options, plan, fetched));
  const auto loaded = std::ranges::count(outcomes, RecomputeReason::kNone, &ChunkOutcome::reason);
  const size_t left_out = plan.token_ids.size() - fetched.planes.num_tokens();
  Json json = {{"out", options.out},
               {"namespace", codec::DigestHex(codec::NamespaceDigest(plan.descriptor))},
               {"loaded_chunks", loaded},
               {"recompute_chunks", outcomes.size() - loaded},
               {"left_out_tokens", left_out},
               {"bytes", fetched.result.bytes},
               {"ms", fetched.result.ms},
               {"chunks", OutcomesToJson(fetched.result)}};
  const std::optional<uint64_t> wasted = WastedBytes(fetched.result);
  if (wasted) json["wasted_bytes"] = *wasted;
  if (!options.json) {
    PrintOutcomes(fetched.result);
    PrintTotals(fetched.result, static_cast<size_t>(loaded), wasted.value_or(0));
  }
  bool ok = true;
  if (original) {
    ASSIGN_OR_RETURN(ok, Check(*original, options, plan, fetched, json));
  }
  if (options.json) PrintJson(json);
  if (left_out > 0) {
    Note(absl::StrCat("the last ", left_out, " tokens make no full chunk and are never stored"));
  }
  NoteOtherNamespaces(options, plan, fetched.result);
  if (!ok) return absl::InternalError("what was loaded differs from the original");
  return static_cast<size_t>(loaded) == outcomes.size() ? kOk : kPartial;
}

}  // namespace

void AddFetch(CLI::App& app, Run& run) {
  auto options = std::make_shared<FetchOptions>();
  CLI::App* sub = AddCommand(app, run, "fetch", "Load a context within a time limit", kExamples,
                             options, Fetch);
  sub->add_option("OUT", options->out, "Cache of the loaded chunks, safetensors")->required();
  sub->add_option("--like", options->like, "Cache file with the same token ids and shapes");
  sub->add_option("--tokens", options->tokens_file, "File of token ids: JSON list or plain numbers")
      ->excludes("--like");
  sub->add_option("--slo", options->slo_ms, "Time limit of the load, ms")
      ->check(WholeWithin(0, 600'000))
      ->capture_default_str();
  AddLevel(*sub, options->level, "Only this level (default: the best that the time allows)");
  AddRecompute(
      *sub, {RecomputeCapability::kNone, RecomputeCapability::kSuffix, RecomputeCapability::kAny},
      options->capability);
  sub->add_option("--check", options->check, "Compare what was loaded with this original");
  sub->add_option("--record", options->record, "Write a record of the load; see sluice explain");
  AddServer(*sub, options->server);
  sub->add_option("-n,--node", options->node, "Load through the daemon at this socket")
      ->excludes("--server");
  sub->add_option("--namespace", options->name_space, "With --tokens: the namespace to load from")
      ->excludes("--like");
  AddProfile(*sub, options->profile)
      ->description("With --like: profile (default: the namespace's; with --node: built in)")
      ->excludes("--tokens");
  AddIdentity(*sub, options->identity);
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
