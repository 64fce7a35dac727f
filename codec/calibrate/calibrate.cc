#include "codec/calibrate/calibrate.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/calibrate/attention_rule.h"
#include "codec/calibrate/channel_reader.h"
#include "codec/calibrate/group_basis.h"
#include "codec/calibrate/group_size.h"
#include "codec/calibrate/held_out.h"
#include "codec/calibrate/plane_statistics.h"
#include "codec/calibrate/plane_steps.h"
#include "codec/calibrate/query_weight.h"
#include "codec/calibrate/sink_choice.h"
#include "codec/calibrate/step_scale.h"
#include "codec/calibrate/training_rows.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr int kLevels = 3;
constexpr size_t kMaxLearntClasses = 32;
constexpr uint32_t kTrainingChunk = 256;  // tokens
// What the errors of all planes cost together, to what they would cost as noise one by one. They
// are not noise: what is left out repeats from token to token and from plane to plane. Measured
// with SmolLM2-135M on six texts at the finest level.
constexpr double kJointHarm = 1.5;

// Bases for one choice of groups, and what they are worth.
struct LearntGroups {
  uint32_t group_layers = 0;
  std::vector<GroupSpec> groups;
  std::vector<GroupCalibration> calibrations = {};
  DivergenceModel divergence = {};
  double scale = 1;  // of the steps, for the target divergence
};

class Calibrator {
 public:
  Calibrator(const Contexts& contexts, const CalibrateOptions& options,
             const CalibrateProgress& progress, uint32_t sink_tokens)
      : contexts_(contexts),
        options_(options),
        progress_(progress),
        sink_tokens_(sink_tokens),
        split_(SplitTokens(contexts, sink_tokens, kTrainingChunk)),
        reader_(contexts) {}

  absl::StatusOr<CalibrateResult> Run();

 private:
  void Report(const char* what, uint64_t done, uint64_t total) const {
    if (progress_) progress_(what, done, total);
  }
  Normalisation NormalisationOf(std::span<const double> steps) const {
    return {sink_tokens_, means_, steps, &weights_};
  }

  absl::Status MeasurePlanesAndSteps();
  absl::Status CheckGroups(const std::vector<GroupSpec>& groups) const;
  uint64_t LargestGroup(const std::vector<GroupSpec>& groups) const;
  absl::Status ChooseGroups();
  absl::StatusOr<LearntGroups> LearnBases(uint32_t group_layers);
  absl::Status SampleDivergence(const GroupChannels& group, const GroupBasis& basis,
                                DivergenceModel& divergence);
  absl::Status LearnClasses();
  absl::StatusOr<Profile> MakeProfile(std::vector<LevelQuality> levels) const;

  const Contexts& contexts_;
  const CalibrateOptions& options_;
  const CalibrateProgress& progress_;
  const uint32_t sink_tokens_;
  TokenSplit split_;
  ChannelReader reader_;
  std::vector<double> sensitivities_;  // [plane], of all planes' errors together
  QueryWeights weights_;
  std::vector<PlaneStatistics> statistics_;
  std::vector<std::vector<double>> means_;
  std::vector<double> steps_;  // relative until ChooseGroups
  std::vector<GroupSpec> groups_;
  Calibration calibration_;
  CalibrateReport report_;
};

absl::Status Calibrator::MeasurePlanesAndSteps() {
  const size_t num_planes = contexts_.geometry.planes.size();
  RETURN_IF_ERROR(CheckSensitivities(options_.sensitivities));
  RETURN_IF_ERROR(CheckQueries(contexts_, options_.queries));
  ASSIGN_OR_RETURN(statistics_, MeasurePlanes(contexts_, split_, sink_tokens_, [&](size_t done) {
                     Report("measuring planes", done, num_planes);
                   }));
  for (const PlaneStatistics& plane : statistics_) means_.push_back(plane.means);
  const std::vector<std::vector<float>> queries =
      options_.queries.empty() ? GuessQueries(contexts_, statistics_) : options_.queries;
  const auto costs = GuessSensitivities(contexts_, statistics_, queries);
  ASSIGN_OR_RETURN(weights_, MakeQueryWeights(contexts_, queries, costs));
  for (const std::vector<double>& heads : costs) {
    sensitivities_.push_back(std::accumulate(heads.begin(), heads.end(), 0.0) /
                             static_cast<double>(std::max<size_t>(heads.size(), 1)));
  }
  if (!options_.sensitivities.empty()) {
    sensitivities_ = SmoothSensitivities(options_.sensitivities, sensitivities_);
  }
  for (double& sensitivity : sensitivities_) sensitivity *= kJointHarm;
  ASSIGN_OR_RETURN(RelativeSteps steps,
                   ChooseRelativeSteps(contexts_, statistics_, sensitivities_));
  steps_ = std::move(steps.steps);
  report_.warnings = std::move(steps.warnings);
  return absl::OkStatus();
}

uint64_t Calibrator::LargestGroup(const std::vector<GroupSpec>& groups) const {
  size_t largest = 0;
  for (const GroupSpec& group : groups) {
    largest = std::max(largest, ChannelsOf(contexts_.geometry, steps_, group).count);
  }
  return largest;
}

absl::Status Calibrator::CheckGroups(const std::vector<GroupSpec>& groups) const {
  const uint64_t largest = LargestGroup(groups);
  const uint64_t limit = std::min<uint64_t>(options_.max_macs_per_element, kMaxTransformChannels);
  if (largest > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group would have ", largest, " channels, more than ", limit,
                     "; give fewer --group-layers",
                     limit < kMaxTransformChannels ? ", or a larger --max-macs-per-element" : ""));
  }
  const uint64_t bytes = BasisBytes(contexts_.geometry, steps_, groups);
  if (bytes > options_.max_profile_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the profile would have ", bytes, " bytes, more than ", options_.max_profile_bytes,
        "; give fewer --group-layers, or a larger --max-profile-bytes"));
  }
  if (split_.training_tokens < kMinTokensPerChannel * largest) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", largest, " channels needs ", kMinTokensPerChannel * largest,
                     " tokens to learn from, and there are ", split_.training_tokens,
                     " beside those held out; give more contexts, or fewer --group-layers"));
  }
  return absl::OkStatus();
}

absl::Status Calibrator::ChooseGroups() {
  uint32_t layers = options_.group_layers;
  if (layers == 0) {
    layers = CountModelLayers(contexts_.geometry);
    while (layers > 1 && !CheckGroups(MakeGroups(contexts_.geometry, layers)).ok()) --layers;
  }
  ASSIGN_OR_RETURN(LearntGroups best, LearnBases(layers));
  // With ample tokens more layers never cost rate. With fewer, a large group's basis may fit what
  // it was learnt from better than anything else.
  const auto ample = [&] {
    return split_.training_tokens >= kAmpleTokensPerChannel * LargestGroup(best.groups);
  };
  const auto note = [&](const LearntGroups& learnt) {
    report_.tried_group_layers.emplace_back(learnt.group_layers,
                                            learnt.divergence.EstimateRate(learnt.scale));
    return report_.tried_group_layers.back().second;
  };
  if (options_.group_layers == 0 && !ample() && layers > 1) {
    double rate = note(best);
    while (best.group_layers > 1 && !ample()) {
      ASSIGN_OR_RETURN(LearntGroups smaller, LearnBases((best.group_layers + 1) / 2));
      const double smaller_rate = note(smaller);
      if (smaller_rate >= rate) break;
      rate = smaller_rate;
      best = std::move(smaller);
    }
  }
  report_.group_layers = best.group_layers;
  report_.needed_tokens = kMinTokensPerChannel * LargestGroup(best.groups);
  groups_ = std::move(best.groups);
  calibration_.groups = std::move(best.calibrations);
  for (double& step : steps_) step *= best.scale;
  return absl::OkStatus();
}

absl::StatusOr<LearntGroups> Calibrator::LearnBases(uint32_t group_layers) {
  LearntGroups learnt{.group_layers = group_layers,
                      .groups = MakeGroups(contexts_.geometry, group_layers)};
  RETURN_IF_ERROR(CheckGroups(learnt.groups));
  for (size_t g = 0; g < learnt.groups.size(); ++g) {
    Report("learning bases", g, learnt.groups.size());
    const GroupChannels group = ChannelsOf(contexts_.geometry, steps_, learnt.groups[g]);
    ASSIGN_OR_RETURN(Dense<double> covariance,
                     MeasureCovariance(reader_, group, split_.training, NormalisationOf(steps_)));
    ApplyWeights(weights_, group, covariance);
    ASSIGN_OR_RETURN(GroupBasis basis, MakeBasis(weights_, group, std::move(covariance)));
    RETURN_IF_ERROR(SampleDivergence(group, basis, learnt.divergence));
    GroupCalibration& result = learnt.calibrations.emplace_back();
    result.basis = std::move(basis.basis);
    for (size_t plane : group.planes) {
      result.means.insert(result.means.end(), means_[plane].begin(), means_[plane].end());
    }
  }
  ASSIGN_OR_RETURN(learnt.scale, learnt.divergence.SolveScale(options_.target_kl));
  return learnt;
}

// Of tokens that no basis has seen: what one leaves out of them is the larger error.
absl::Status Calibrator::SampleDivergence(const GroupChannels& group, const GroupBasis& basis,
                                          DivergenceModel& divergence) {
  constexpr size_t kSampledChunks = 16;
  Dense<float> y;
  const std::vector<TokenSpan> spans =
      Thin(split_.held_out.empty() ? split_.training : split_.held_out, kSampledChunks);
  const size_t per_chunk = DivergenceModel::kSamples / spans.size();
  Dense<float> samples(group.count, spans.size() * per_chunk);
  for (size_t s = 0; s < spans.size(); ++s) {
    RETURN_IF_ERROR(ReadNormalised(reader_, group, spans[s], sink_tokens_, means_, steps_, y));
    for (size_t channel = 0; channel < group.count; ++channel) {
      for (size_t k = 0; k < per_chunk; ++k) {
        samples.row(channel)[s * per_chunk + k] =
            y.row(channel)[(2 * k + 1) * y.columns / (2 * per_chunk)];
      }
    }
  }
  std::vector<double> harm;
  for (size_t plane : group.planes) {
    harm.push_back(sensitivities_[plane] * steps_[plane] * steps_[plane]);
  }
  Dense<float> coefficients(group.count, samples.columns);
  Multiply(MakeAnalysis(weights_, group, basis.basis), samples, coefficients);
  divergence.Add(basis, harm, std::move(coefficients));
  return absl::OkStatus();
}

absl::Status Calibrator::LearnClasses() {
  TrainingRows rows(kLevels);
  size_t rows_per_chunk = 0;
  for (const GroupCalibration& group : calibration_.groups) rows_per_chunk += group.means.size();
  const std::vector<TokenSpan> spans =
      Thin(split_.training, TrainingRows::kMaxRows / rows_per_chunk);
  for (size_t g = 0; g < groups_.size(); ++g) {
    Report("learning tables", g, groups_.size());
    const GroupChannels group = ChannelsOf(contexts_.geometry, steps_, groups_[g]);
    RETURN_IF_ERROR(rows.AddGroup(reader_, group,
                                  MakeAnalysis(weights_, group, calibration_.groups[g].basis),
                                  spans, NormalisationOf(steps_)));
  }
  rows.Learn(kMaxLearntClasses, calibration_.tables, calibration_.groups);
  return absl::OkStatus();
}

absl::StatusOr<Profile> Calibrator::MakeProfile(std::vector<LevelQuality> levels) const {
  Calibration calibration = calibration_;
  calibration.num_contexts = split_.num_training_contexts;
  calibration.num_tokens = split_.training_tokens;
  calibration.levels = std::move(levels);
  return Profile::Calibrated(contexts_.geometry, steps_, groups_, sink_tokens_,
                             std::move(calibration));
}

absl::StatusOr<CalibrateResult> Calibrator::Run() {
  RETURN_IF_ERROR(MeasurePlanesAndSteps());
  RETURN_IF_ERROR(ChooseGroups());
  RETURN_IF_ERROR(LearnClasses());
  ASSIGN_OR_RETURN(const Profile draft, MakeProfile(std::vector<LevelQuality>(kLevels)));
  const HeldOutJudge judge = {contexts_, split_.held_out, statistics_, sensitivities_, weights_};
  ASSIGN_OR_RETURN(auto levels, MeasureQuality(draft, judge, [&](size_t done) {
                     Report("judging chunks", done, split_.held_out.size());
                   }));
  ASSIGN_OR_RETURN(Profile profile, MakeProfile(std::move(levels)));
  for (const TokenSpan& span : split_.held_out) report_.held_out_tokens += span.size();
  return CalibrateResult{std::move(profile), std::move(report_)};
}

}  // namespace

absl::StatusOr<CalibrateResult> Calibrate(const Contexts& contexts, const CalibrateOptions& options,
                                          const CalibrateProgress& progress) {
  RETURN_IF_ERROR(contexts.Validate());
  uint32_t sink_tokens = options.sink_tokens.value_or(0);
  if (!options.sink_tokens) {
    ASSIGN_OR_RETURN(sink_tokens, ChooseSinkTokens(contexts));
  }
  return Calibrator(contexts, options, progress, sink_tokens).Run();
}

}  // namespace sluice::codec
