// sluice bench: how fast does a server load contexts?
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/bench_load.h"
#include "client/cli/commands.h"
#include "client/cli/encode_context.h"
#include "client/cli/json.h"
#include "client/cli/options.h"
#include "client/cli/profiles.h"
#include "client/cli/progress.h"
#include "client/cli/statistics.h"
#include "client/cli/synthetic.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice bench
  sluice bench --server 10.0.0.7:7420 --contexts 16 --loads 200 -C 8
  sluice bench --like cache.safetensors --level lossless
  sluice bench --layers 32 --heads 8 --dim 128 --tokens 8192 --slo 1000
The contexts are stored under the model sluice-bench and removed at the end.)";

constexpr char kBenchModel[] = "sluice-bench";

struct Options {
  ServerOptions server;
  std::string like, profile;
  SyntheticShape shape;
  uint32_t chunk_tokens = 256;
  uint32_t contexts = 4, loads = 32, concurrency = 4;
  uint32_t slo_ms = 30'000;
  std::optional<codec::Level> level;
  uint64_t seed = 1;
  bool keep = false, json = false;
};

// Dimensions are rotated in pairs. The text is a whole number.
std::string EvenFault(const std::string& text) {
  const bool odd = !text.empty() && (text.back() - '0') % 2 != 0;
  return odd ? absl::StrCat(text, " is odd; head_dim must be even") : "";
}

struct BenchContext {
  codec::ContextFile file;
  ProfilePtr profile;
};

// One encoded context; the others differ from it in their first token only.
absl::StatusOr<BenchContext> MakeContext(const Options& options) {
  SyntheticContext context;
  if (options.like.empty()) {
    context = MakeSynthetic(options.shape, options.seed);
  } else {
    ASSIGN_OR_RETURN(context.input, client::ReadContext(options.like));
    if (context.input.token_ids.empty()) context.input.token_ids.resize(context.input.num_tokens);
  }
  if (context.input.num_tokens < options.chunk_tokens) {
    return WithHint(absl::InvalidArgumentError("the context is shorter than one chunk"),
                    "see --tokens and --chunk-tokens");
  }
  ASSIGN_OR_RETURN(ProfilePtr profile,
                   LoadProfile(options.profile, context.input.geometry, &options.server));
  IdentityOptions identity;
  identity.chunk_tokens = options.chunk_tokens;
  identity.model = kBenchModel;
  identity.salt = absl::StrCat(getpid(), ".", absl::ToUnixMicros(absl::Now()));  // nobody else's
  ASSIGN_OR_RETURN(auto descriptor, MakeDescriptor(identity, context.input, *profile));
  ASSIGN_OR_RETURN(EncodedContext encoded,
                   EncodeContext({.input = context.input,
                                  .profile = *profile,
                                  .descriptor = descriptor,
                                  .lossless = options.level == codec::kLossless,
                                  .last_partial_chunk = false}));
  return BenchContext{std::move(encoded.file), std::move(profile)};
}

// Stores the contexts; returns the keys of each.
absl::StatusOr<std::vector<std::vector<codec::Digest>>> Store(const Options& options,
                                                              client::RemoteStore& store,
                                                              BenchContext context) {
  codec::ContextFile& file = context.file;
  std::vector<std::vector<codec::Digest>> contexts;
  Progress progress("storing contexts", options.contexts);
  for (uint32_t i = 0; i < options.contexts; ++i) {
    file.token_ids[0] = i;
    RETURN_IF_ERROR(Rename(file.descriptor, file));
    const auto keys = codec::ChunkKeys(codec::NamespaceDigest(file.descriptor), file.token_ids,
                                       file.descriptor.chunk_tokens);
    for (size_t chunk = 0; chunk < keys.size(); ++chunk) {
      std::optional<codec::Digest> parent;
      if (chunk > 0) parent = keys[chunk - 1];
      const auto put = client::PutWithProfile(
          store, {file.descriptor, keys[chunk], parent, file.containers[chunk]},
          [&]() -> std::string_view { return context.profile->bytes(); },
          {.chunk = absl::Seconds(options.server.timeout_s)}, nullptr);
      if (!put.ok()) return ExplainUnreachable(put.status(), options.server.address);
    }
    contexts.push_back(keys);
    progress.Update(i + 1);
  }
  return contexts;
}

void Report(const Options& options, const BenchResult& result, uint64_t plane_bytes_per_chunk) {
  const double p50 = Percentile(result.ms, 50), p99 = Percentile(result.ms, 99);
  const double rate = static_cast<double>(result.bytes) / result.wall_s;
  const double planes =
      static_cast<double>(result.loaded_chunks * plane_bytes_per_chunk) / result.wall_s;
  if (options.json) {
    Json outcomes = Json::object();
    for (const auto& [name, chunks] : result.outcomes) outcomes[name] = chunks;
    PrintJson({{"loads", result.ms.size()},
               {"concurrency", options.concurrency},
               {"p50_ms", p50},
               {"p99_ms", p99},
               {"wall_s", result.wall_s},
               {"bytes", result.bytes},
               {"bytes_per_s", rate},
               {"plane_bytes_per_s", planes},
               {"chunks", outcomes}});
    return;
  }
  PrintPairs({{"loads", absl::StrCat(result.ms.size(), ", ", options.concurrency, " at a time")},
              {"time of a load", absl::StrCat("p50 ", FormatMs(p50), ", p99 ", FormatMs(p99))},
              {"received", FormatRate(rate)},
              {"planes decoded", FormatRate(planes)}});
  std::printf("\n");
  Table table({{"outcome", Align::kLeft}, {"chunks"}});
  for (const auto& [name, chunks] : result.outcomes) table.Add({name, FormatCount(chunks)});
  table.Print();
}

absl::StatusOr<ExitCode> Bench(const Options& options) {
  ASSIGN_OR_RETURN(const BenchContext context, MakeContext(options));
  const codec::Profile& profile = *context.profile;
  BenchLoad bench;
  bench.store = client::RemoteStore::Create(options.server.address);
  bench.descriptor = context.file.descriptor;
  ASSIGN_OR_RETURN(bench.contexts, Store(options, *bench.store, context));
  bench.loads = options.loads;
  bench.concurrency = options.concurrency;
  bench.slo = absl::Milliseconds(options.slo_ms);
  bench.level = options.level;
  const BenchResult result = RunLoads(context.profile, bench);
  Report(options, result, profile.geometry().bytes_per_token() * options.chunk_tokens);
  if (!options.keep) {
    const auto admin = client::RemoteAdmin::Create(options.server.address);
    client::ChunkSelector all;
    all.namespace_digest = codec::NamespaceDigest(bench.descriptor);
    RETURN_IF_ERROR(admin->Delete(all, false, options.server.Deadline()).status());
  }
  const uint64_t chunks = bench.contexts[0].size() * options.loads;
  return result.loaded_chunks == chunks ? kOk : kPartial;
}

}  // namespace

void AddBench(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      AddCommand(app, run, "bench", "Measure loads from a server", kExamples, options, Bench);
  const auto number = [&](const char* flag, uint32_t& value, const char* what, uint32_t most) {
    return sub->add_option(flag, value, what)->check(WholeWithin(1, most))->capture_default_str();
  };
  number("--contexts", options->contexts, "Contexts to store", 10'000);
  number("--loads", options->loads, "Loads in all", 1'000'000);
  number("-C,--concurrency", options->concurrency, "Loads at a time", 256);
  sub->add_option("--slo", options->slo_ms, "Time limit of each load, ms")
      ->check(WholeWithin(0, 600'000))
      ->capture_default_str();
  AddLevel(*sub, options->level, "Only this level (default: the best that the time allows)");
  sub->add_option("--like", options->like, "Use this cache instead of a made-up one");
  AddProfile(*sub, options->profile)->needs("--like");
  number("--layers", options->shape.model_layers, "Made-up cache: model layers", 500);
  number("--heads", options->shape.num_heads, "Made-up cache: KV heads", 1024);
  number("--dim", options->shape.head_dim, "Made-up cache: head_dim, even", 1024)
      ->check([](const std::string& text) { return EvenFault(text); }, "");
  number("--tokens", options->shape.num_tokens, "Made-up cache: tokens", 1 << 20);
  number("--chunk-tokens", options->chunk_tokens, "Tokens in a chunk",
         codec::NamespaceDescriptor::kMaxChunkTokens);
  sub->add_option("--seed", options->seed, "Seed of the made-up cache")
      ->check(WholeWithin(0, UINT64_MAX))
      ->capture_default_str();
  sub->add_flag("--keep", options->keep, "Leave the contexts on the server");
  AddServer(*sub, options->server);
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
