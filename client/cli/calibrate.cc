// sluice calibrate: contexts of a model become its profile.
#include "codec/calibrate/calibrate.h"

#include <sys/resource.h>

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/calibrate_input.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/file_io.h"
#include "codec/bytes.h"
#include "codec/calibrate/group_size.h"
#include "codec/calibrate/plane_steps.h"
#include "codec/calibrate/query_weight.h"
#include "codec/digest.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice calibrate --out model.profile dumps/*.safetensors
  sluice calibrate --out model.profile --sensitivity s.json --queries q.safetensors dumps/*
  sluice calibrate --out model.profile --server 10.0.0.7:7420 --namespace 3fa9 ids/*.json
A file of token ids (a JSON list or plain numbers) names a context on the server, which must have
been stored with put --lossless. It is loaded into $TMPDIR; nothing of it stays.
s.json is {"kl_per_variance": [[K, V], ...]}, a pair for each model layer; q.safetensors has tensors
layers.{i}.q_cov, F32 [num_kv_heads, head_dim, head_dim]. codec/calibrate/README.md says more.)";

struct Options {
  CalibrateSource source;
  std::string sensitivity, queries;
  codec::CalibrateOptions calibrate;
  bool json = false;
};

constexpr double kMinTargetKl = 1e-7, kMaxTargetKl = 1;

// What is wrong with the text, or nothing. CLI::Range takes what is not a number.
std::string CheckTargetKl(const std::string& text) {
  double nats = 0;
  if (absl::SimpleAtod(text, &nats) && nats >= kMinTargetKl && nats <= kMaxTargetKl) return "";
  return absl::StrCat("it is ", text, "; ", kMinTargetKl, " to ", kMaxTargetKl, " is possible");
}

// A line for each stage, one after the other.
class Stages {
 public:
  void Update(const std::string& what, uint64_t done, uint64_t total) {
    if (what != what_ || !progress_) {
      progress_.reset();
      progress_.emplace(what, total);
      what_ = what;
    }
    progress_->Update(done);
  }

 private:
  std::string what_;
  std::optional<Progress> progress_;
};

void PrintTables(const codec::Profile& profile) {
  const codec::Calibration& calibration = *profile.calibration();
  Table levels(
      {{"level", Align::kLeft}, {"bits/element"}, {"mean error"}, {"max error"}, {"predicted KL"}});
  for (size_t l = 0; l < calibration.levels.size(); ++l) {
    const codec::LevelQuality& level = calibration.levels[l];
    levels.Add({absl::StrCat(l), FormatNumber(level.bits_per_element),
                FormatNumber(level.mean_error), FormatNumber(level.max_error),
                level.predicted_kl > 0 ? FormatNumber(level.predicted_kl) : "-"});
  }
  levels.Print();
}

// Of this process; pages of the contexts' files that it has read count too.
uint64_t PeakMemoryBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) << 10;
}

void PrintReport(const Options& options, const codec::CalibrateResult& result) {
  const codec::Calibration& calibration = *result.profile.calibration();
  Json levels = Json::array();
  for (size_t l = 0; l < calibration.levels.size(); ++l) {
    const codec::LevelQuality& level = calibration.levels[l];
    levels.push_back({{"level", absl::StrCat(l)},
                      {"bits_per_element", level.bits_per_element},
                      {"mean_error", level.mean_error},
                      {"max_error", level.max_error},
                      {"predicted_kl", level.predicted_kl}});
  }
  Json tried = Json::array();
  for (const auto& [layers, rate] : result.report.tried_group_layers) {
    tried.push_back({{"group_layers", layers}, {"bits_per_element", rate}});
  }
  PrintJson({{"out", options.source.out},
             {"profile_id", codec::DigestHex(result.profile.id())},
             {"bytes", result.profile.bytes().size()},
             {"group_layers", result.report.group_layers},
             {"tried_group_layers", tried},
             {"sink_tokens", result.profile.sink_tokens()},
             {"contexts", calibration.num_contexts},
             {"tokens", calibration.num_tokens},
             {"needed_tokens", result.report.needed_tokens},
             {"held_out_tokens", result.report.held_out_tokens},
             {"peak_memory_bytes", PeakMemoryBytes()},
             {"levels", levels}});
}

void PrintSummary(const Options& options, const codec::CalibrateResult& result) {
  const codec::Profile& profile = result.profile;
  std::printf("%s: profile %s, %s, groups of %s, first %s exact\n", options.source.out.c_str(),
              codec::DigestHex(profile.id()).c_str(), FormatBytes(profile.bytes().size()).c_str(),
              FormatCount(result.report.group_layers, "model layer").c_str(),
              FormatCount(profile.sink_tokens(), "token").c_str());
  std::printf("learnt from %s in %s; such groups need %s at least\n",
              FormatCount(profile.calibration()->num_tokens, "token").c_str(),
              FormatCount(profile.calibration()->num_contexts, "context").c_str(),
              FormatCount(result.report.needed_tokens, "token").c_str());
  std::printf("judged by %s held out from the %s given; %s of memory at the peak\n",
              FormatCount(result.report.held_out_tokens, "token").c_str(),
              FormatCount(options.source.contexts.size(), "context").c_str(),
              FormatBytes(PeakMemoryBytes()).c_str());
  for (const auto& [layers, rate] : result.report.tried_group_layers) {
    std::printf("tried groups of %s: about %s bits/element\n",
                FormatCount(layers, "model layer").c_str(), FormatNumber(rate).c_str());
  }
}

absl::StatusOr<ExitCode> Calibrate(const Options& options) {
  for (const std::string& path : options.source.contexts) {
    RETURN_IF_ERROR(CheckOutput(options.source.out, {path, options.sensitivity, options.queries}));
  }
  ASSIGN_OR_RETURN(const CalibrateInput input, ReadContexts(options.source));
  codec::CalibrateOptions calibrate = options.calibrate;
  const codec::Geometry& geometry = input.contexts.geometry;
  if (const uint32_t layers = codec::CountModelLayers(geometry); calibrate.group_layers > layers) {
    return absl::InvalidArgumentError(absl::StrCat("--group-layers: it is ", calibrate.group_layers,
                                                   "; the model has ", layers, " layers"));
  }
  if (!options.sensitivity.empty()) {
    ASSIGN_OR_RETURN(calibrate.sensitivities, ReadSensitivities(options.sensitivity, geometry));
    RETURN_IF_ERROR(
        WithPrefix(codec::CheckSensitivities(calibrate.sensitivities), options.sensitivity));
  }
  if (!options.queries.empty()) {
    ASSIGN_OR_RETURN(calibrate.queries, ReadQueries(options.queries, geometry));
    RETURN_IF_ERROR(
        WithPrefix(codec::CheckQueries(input.contexts, calibrate.queries), options.queries));
  }
  Stages stages;
  const auto result = codec::Calibrate(input.contexts, calibrate,
                                       [&](const std::string& what, uint64_t done, uint64_t total) {
                                         stages.Update(what, done, total);
                                       });
  if (absl::IsOutOfRange(result.status()) && !options.sensitivity.empty()) {
    return WithPrefix(result.status(), options.sensitivity);
  }
  RETURN_IF_ERROR(result.status());
  const std::span<const std::byte> parts[] = {codec::AsBytes(result->profile.bytes())};
  RETURN_IF_ERROR(client::WriteFile(options.source.out, parts));
  for (const std::string& warning : result->report.warnings) Note(warning);
  if (options.json) {
    PrintReport(options, *result);
  } else {
    PrintTables(result->profile);
    PrintSummary(options, *result);
  }
  return kOk;
}

}  // namespace

void AddCalibrate(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  codec::CalibrateOptions& calibrate = options->calibrate;
  CLI::App* sub = AddCommand(app, run, "calibrate", "Make a profile of a model from its contexts",
                             kExamples, options, Calibrate);
  sub->add_option("CONTEXT", options->source.contexts,
                  "Caches (safetensors), or token ids of stored contexts (as fetch --tokens)")
      ->required();
  sub->add_option("-o,--out", options->source.out, "Profile to write")->required();
  sub->add_option("--sensitivity", options->sensitivity,
                  "Divergence per variance of each plane (default: guessed)");
  sub->add_option("--queries", options->queries,
                  "Second moments of the queries (default: guessed)");
  sub->add_option("--group-layers", calibrate.group_layers,
                  "Model layers of a group (default: the most that limits admit and pay)")
      ->check(WholeWithin(1, codec::Geometry::kMaxPlanes));
  sub->add_option("--max-profile-bytes", calibrate.max_profile_bytes, "Limit of the profile's size")
      ->capture_default_str();
  sub->add_option("--max-macs-per-element", calibrate.max_macs_per_element,
                  "Limit of a group's channels")
      ->capture_default_str();
  sub->add_option("--target-kl", calibrate.target_kl, "Divergence of the finest level, nats")
      ->check(CheckTargetKl)
      ->capture_default_str();
  sub->add_option("--sink-tokens", calibrate.sink_tokens,
                  "First tokens of a context kept exact (default: as many as differ from the rest)")
      ->check(CLI::Range(0u, codec::Profile::kMaxSinkTokens));
  StoreOptions& store = options->source.store;
  AddServer(*sub, store.server);
  sub->add_option("--namespace", store.name_space, "Where contexts named by token ids are stored");
  AddIdentity(*sub, store.identity);
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
