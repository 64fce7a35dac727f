// sluice simulate: one load over a link that is given as a trace, without a server.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/commands.h"
#include "client/cli/load_advice.h"
#include "client/cli/load_report.h"
#include "client/cli/load_timeline.h"
#include "client/cli/options.h"
#include "client/cli/profiles.h"
#include "client/cli/progress.h"
#include "client/cli/record.h"
#include "client/cli/units.h"
#include "client/file_io.h"
#include "client/load_simulation.h"
#include "codec/bytes.h"
#include "codec/calibration.h"
#include "codec/status_macros.h"
#include "sim/rate_parse.h"

namespace sluice::cli {
namespace {

using adapt::RecomputeCapability;

constexpr char kExamples[] = R"(Examples:
  sluice simulate --trace constant:800 --tokens 16384 --slo 2000 --recompute bidirectional
  sluice simulate --trace wifi.txt --tokens 8192 --slo 2000 --recompute suffix --svg load.svg
  sluice simulate --trace mahimahi:lte.down --seed 7 --tokens 4096 --slo 2000 --profile my.profile
TRACE is constant:MBIT_PER_S, mahimahi:FILE, or a FILE with one Mbit/s value per line; there a
comment may say "step_ms: 100" (else 1000) and, with a trace in each row, "Gbit/s". The load starts
at the beginning of the first trace; --seed N picks a trace and a moment at random. Traces repeat.
Nothing is known of the link before the load; the engine has told what its prefills cost. What is
neither loaded nor computed in the end is computed then.)";

constexpr size_t kTextColumns = 60, kDrawingColumns = 100;
constexpr double kBytesPerMbit = 1e6 / 8;
constexpr uint64_t kMaxSeed = uint64_t{1} << 62;
constexpr uint32_t kMaxTokens = 4 << 20;

// A built-in profile has no figures of its own: those of README.md, measured on a small model.
struct BuiltinLevel {
  double bits_per_element, loss;
};
constexpr BuiltinLevel kBuiltinLevels[] = {{0.31, 0.5056}, {1.47, 0.0774}, {2.94, 0.0054}};

struct Options {
  std::string trace, profile, svg, record;
  uint32_t slo_ms = 0, tokens = 0, chunk_tokens = kDefaultChunkTokens;
  double rtt_ms = 1, prefill_tokens_per_s = sim::LoadModel().prefill_tokens_per_s;
  RecomputeCapability capability = RecomputeCapability::kNone;
  uint64_t seed = 0;
  bool json = false;
};

absl::StatusOr<std::vector<sim::RateTrace>> ReadTraces(const std::string& text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "constant:")) {
    double mbit = 0;
    if (!absl::SimpleAtod(rest, &mbit) || !(mbit > 0 && mbit <= 1e7)) {
      return WithHint(absl::InvalidArgumentError(absl::StrCat("\"", rest, "\" is no rate")),
                      "a rate in Mbit/s, such as constant:800");
    }
    return std::vector<sim::RateTrace>{sim::ConstantRate(mbit * kBytesPerMbit)};
  }
  const bool mahimahi = absl::ConsumePrefix(&rest, "mahimahi:");
  const std::string path(rest);
  ASSIGN_OR_RETURN(const std::string bytes, client::ReadFile(path, sim::kMaxTraceBytes));
  auto traces =
      sim::ParseRates(bytes, mahimahi ? sim::TraceFormat::kMahimahi : sim::TraceFormat::kValues);
  if (!traces.ok()) return WithPrefix(traces.status(), path);
  return traces;
}

absl::StatusOr<sim::RateTrace> ChooseLink(const Options& options) {
  ASSIGN_OR_RETURN(const std::vector<sim::RateTrace> traces, ReadTraces(options.trace));
  if (options.seed == 0) return traces[0];
  std::mt19937_64 random(options.seed);
  const sim::RateTrace& trace = traces[random() % traces.size()];
  return trace.From(static_cast<adapt::TimeUs>(
      random() % static_cast<uint64_t>(std::max<adapt::TimeUs>(trace.period_us(), 1))));
}

// Sizes and losses of the profile's levels.
void UseProfile(const codec::Profile& profile, sim::LoadModel& model) {
  const codec::Geometry& geometry = profile.geometry();
  model.token_bytes = static_cast<double>(geometry.bytes_per_token());
  model.embedding_overhead = 0;  // a level's figure includes those below it
  model.size_shares.clear();
  model.losses.clear();
  const double elements = static_cast<double>(geometry.elements_per_token());
  const auto add = [&](double bits_per_element, double loss) {
    model.size_shares.push_back(bits_per_element / 8 * elements / model.token_bytes);
    model.losses.push_back(model.losses.empty() ? loss : std::min(loss, model.losses.back()));
  };
  if (profile.calibration() == nullptr) {
    for (const BuiltinLevel& level : kBuiltinLevels) add(level.bits_per_element, level.loss);
    return;
  }
  for (const codec::LevelQuality& level : profile.calibration()->levels) {
    const double error = level.mean_error;
    add(level.bits_per_element, level.predicted_kl > 0 ? level.predicted_kl : error * error);
  }
}

absl::StatusOr<sim::LoadModel> MakeModel(const Options& options) {
  sim::LoadModel model;
  model.unit_tokens = options.chunk_tokens;
  model.prefill_tokens_per_s = options.prefill_tokens_per_s;
  if (model.num_units(options.tokens) > client::kMaxRecordedChunks) {
    return WithHint(absl::InvalidArgumentError(absl::StrCat("--tokens: more than ",
                                                            client::kMaxRecordedChunks, " chunks")),
                    "give more --chunk-tokens");
  }
  if (options.profile.empty()) {
    // As of a load that is not told to be lossless.
    while (model.losses.back() == 0) {
      model.losses.pop_back();
      model.size_shares.pop_back();
    }
    return model;
  }
  ASSIGN_OR_RETURN(const ProfilePtr profile, FindProfile(options.profile, nullptr));
  UseProfile(*profile, model);
  return model;
}

struct Simulated {
  client::LoadRecord record;
  sim::LoadOutcome outcome;
  adapt::TimeUs rest_us = 0;  // for which the engine computed after the load
};

Simulated Simulate(const Options& options, const sim::LoadModel& model, const sim::World& world) {
  const auto slo_us = static_cast<adapt::TimeUs>(options.slo_ms) * 1000;
  sim::Memory memory;
  // An engine that has run for a while: what it has told is trusted.
  for (size_t i = 0; i < adapt::PrefillCost::kTrustedRatios; ++i) model.Calibrate(memory.cost);
  sim::SimLoad load = sim::MakeLoad(model, options.tokens, 0, slo_us, memory.cost);
  load.spec.capability = options.capability;
  load.spec.limit_us = slo_us;
  client::RecordingDriver driver;
  Progress progress("simulating, ms", options.slo_ms);
  sim::Watcher watcher;
  watcher.decide = [&progress](adapt::TimeUs now_us, const adapt::Tick&) {
    progress.Update(static_cast<uint64_t>(now_us / 1000));
  };
  Simulated result;
  result.outcome = sim::Simulate(world, {load}, driver, memory, watcher)[0];
  result.record = std::move(driver.TakeRecords()[0]);
  result.rest_us = result.outcome.ttft_us - world.first_token_us -
                   static_cast<adapt::TimeUs>(std::llround(result.record.ms * 1e3));
  result.record.load_id = "simulation";
  result.record.program = kProgram;
  result.record.server = absl::StrCat("none: ", options.trace);
  return result;
}

// As Advice, for a load whose end the engine's first token has still to follow.
std::string AdviceFor(const Simulated& simulated, bool kept) {
  return kept ? "" : WhyLate(simulated.record);
}

// Beside the load, and what was missing at its end.
std::string EngineText(const Simulated& simulated) {
  const adapt::TimeUs all_us = simulated.outcome.gpu_us, rest_us = simulated.rest_us;
  const std::string text = absl::StrCat("computed for ", FormatUs(all_us));
  if (rest_us <= 0) return text;
  return absl::StrCat(text, ", ", rest_us < all_us ? FormatUs(rest_us) : "all",
                      " of it after the load, ", "what was missing then");
}

void PrintText(const Simulated& simulated, const Timeline& timeline, const sim::RateTrace& link,
               bool kept) {
  const client::LoadRecord& record = simulated.record;
  const sim::LoadOutcome& outcome = simulated.outcome;
  const double ttft_ms = static_cast<double>(outcome.ttft_us) * 1e-3;
  uint64_t finest_bytes = 0;
  for (const adapt::ChunkLadder& ladder : record.spec.chunks) {
    for (const uint64_t bytes : ladder.step_bytes) finest_bytes += bytes;
  }
  const double until_us = std::min(record.ms * 1e3, static_cast<double>(record.slo_us));
  const auto until = std::max<adapt::TimeUs>(static_cast<adapt::TimeUs>(until_us), 1);
  PrintPairs({
      {"context",
       absl::StrCat(FormatCount(record.outcomes.size(), "chunk"), ", ",
                    FormatBytes(static_cast<double>(finest_bytes)), " at the finest level")},
      {"link", absl::StrCat(FormatRate(link.Amount(0, until) * 1e6 / static_cast<double>(until)),
                            " on average over the load")},
      {"result", ResultText(record)},
      {"loss", FormatNumber(outcome.loss)},
      {"received",
       absl::StrCat(FormatBytes(static_cast<double>(outcome.received_bytes)), ", of which ",
                    FormatBytes(static_cast<double>(outcome.wasted_bytes)), " were of no use")},
      {"engine", EngineText(simulated)},
      {"first token",
       absl::StrCat("after ", FormatMs(ttft_ms), ": SLO ", kept ? "kept" : "missed")},
  });
  std::printf("\n%s", TimelineText(timeline).c_str());
  if (const std::string advice = AdviceFor(simulated, kept); !advice.empty()) {
    std::printf("\n%s\n", advice.c_str());
  }
}

Json SimulatedToJson(const Simulated& simulated, const Timeline& timeline, bool kept) {
  Json json = ToJson(simulated.record);
  const sim::LoadOutcome& outcome = simulated.outcome;
  json["first_token_ms"] = static_cast<double>(outcome.ttft_us) * 1e-3;
  json["missed_slo"] = !kept;
  json["advice"] = AdviceFor(simulated, kept);
  json["loss"] = outcome.loss;
  json["received_bytes"] = outcome.received_bytes;
  json["wasted_bytes"] = outcome.wasted_bytes;
  json["computing_ms"] = static_cast<double>(outcome.gpu_us) * 1e-3;
  json["timeline"] = ToJson(timeline);
  return json;
}

absl::StatusOr<ExitCode> RunSimulate(const Options& options) {
  for (const std::string& out : {options.svg, options.record}) {
    if (!out.empty()) RETURN_IF_ERROR(CheckOutput(out, {options.trace, options.profile}));
  }
  if (!options.svg.empty() && options.svg == options.record) {
    return absl::InvalidArgumentError("--svg and --record name the same file");
  }
  ASSIGN_OR_RETURN(const sim::LoadModel model, MakeModel(options));
  sim::World world;
  ASSIGN_OR_RETURN(world.link, ChooseLink(options));
  world.rtt_us = static_cast<adapt::TimeUs>(options.rtt_ms * 1e3);
  world.first_token_us = model.first_token_us;
  const Simulated simulated = Simulate(options, model, world);
  const bool kept = simulated.outcome.ttft_us <= simulated.record.slo_us;
  if (!options.record.empty()) {
    RETURN_IF_ERROR(WriteRecord(options.record, simulated.record));
  }
  if (!options.svg.empty()) {
    const std::string title =
        absl::StrCat(options.trace, ": ", FormatCount(options.tokens, "token"), ", SLO ",
                     FormatMs(options.slo_ms), ", engine: ", CapabilityName(options.capability));
    const std::string svg =
        TimelineSvg(MakeTimeline(simulated.record, &world.link, kDrawingColumns), title);
    const std::span<const std::byte> parts[] = {codec::AsBytes(svg)};
    RETURN_IF_ERROR(client::WriteFile(options.svg, parts));
  }
  const size_t columns = options.json ? kDrawingColumns : kTextColumns;
  const Timeline timeline = MakeTimeline(simulated.record, &world.link, columns);
  if (options.json) {
    PrintJson(SimulatedToJson(simulated, timeline, kept));
  } else {
    PrintText(simulated, timeline, world.link, kept);
  }
  return kOk;
}

}  // namespace

void AddSimulate(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = AddCommand(app, run, "simulate", "Simulate a load over a link given as a trace",
                             kExamples, options, RunSimulate);
  sub->add_option("--trace", options->trace, "The link; see below")->required();
  sub->add_option("--slo", options->slo_ms, "Time limit to the first token, ms")
      ->check(WholeWithin(1, 600'000))
      ->required();
  sub->add_option("--tokens", options->tokens, "Tokens of the context")
      ->check(WholeWithin(1, kMaxTokens))
      ->required();
  sub->add_option("--chunk-tokens", options->chunk_tokens, "Tokens in a chunk")
      ->check(WholeWithin(codec::NamespaceDescriptor::kMinChunkTokens,
                          codec::NamespaceDescriptor::kMaxChunkTokens))
      ->capture_default_str();
  AddProfile(*sub, options->profile)
      ->description("Profile whose levels are loaded (default: as of Llama-3.1-8B, five levels)");
  AddRecompute(*sub,
               {RecomputeCapability::kNone, RecomputeCapability::kSuffix,
                RecomputeCapability::kBidirectional, RecomputeCapability::kAny},
               options->capability);
  sub->add_option("--rtt", options->rtt_ms, "Round trip, ms")
      ->check(Within(0, 10'000))
      ->capture_default_str();
  sub->add_option("--prefill", options->prefill_tokens_per_s,
                  "Tokens per second that the engine computes at the start of a context")
      ->check(Within(1, 1e9))
      ->capture_default_str();
  sub->add_option("--seed", options->seed, "Picks where in the trace the load starts; 0: at 0")
      ->check(CLI::Range(uint64_t{0}, kMaxSeed))
      ->capture_default_str();
  sub->add_option("--svg", options->svg, "Write a drawing");
  sub->add_option("--record", options->record, "Write a record, for sluice explain");
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
