#include "codec/calibrate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/calibrate/channel_reader.h"
#include "codec/calibrate/group_basis.h"
#include "codec/calibrate/group_size.h"
#include "codec/calibrate/held_out.h"
#include "codec/calibrate/plane_statistics.h"
#include "codec/calibrate/plane_steps.h"
#include "codec/calibrate/query_weight.h"
#include "codec/calibrate/step_scale.h"
#include "codec/calibrate/training_rows.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr int kLevels = 3;
constexpr size_t kMaxLearntClasses = 32;
constexpr uint32_t kTrainingChunk = 256;  // tokens
// Of the built-in profile's steps: gives a small language model a divergence of kDefaultTargetKl
// at the finest level.
constexpr double kReferenceScale = 0.4;

class Calibrator {
 public:
  Calibrator(const Contexts& contexts, const CalibrateOptions& options,
             const CalibrateProgress& progress)
      : contexts_(contexts),
        options_(options),
        progress_(progress),
        split_(SplitTokens(contexts, options.sink_tokens, kTrainingChunk)),
        reader_(contexts) {}

  absl::StatusOr<CalibrateResult> Run();

 private:
  void Report(const char* what, uint64_t done, uint64_t total) const {
    if (progress_) progress_(what, done, total);
  }
  Normalisation NormalisationOf(std::span<const double> steps) const {
    return {options_.sink_tokens, means_, steps, &weights_};
  }

  absl::Status MeasurePlanesAndSteps();
  absl::Status CheckGroups(const std::vector<GroupSpec>& groups) const;
  absl::Status ChooseGroups();
  absl::Status LearnBases();
  absl::Status SampleDivergence(const GroupChannels& group, const GroupBasis& basis);
  void ChooseScale();
  absl::Status LearnClasses();
  absl::StatusOr<Profile> MakeProfile(std::vector<LevelQuality> levels) const;

  const Contexts& contexts_;
  const CalibrateOptions& options_;
  const CalibrateProgress& progress_;
  TokenSplit split_;
  ChannelReader reader_;
  std::vector<double> sensitivities_;  // smooth
  QueryWeights weights_;
  std::vector<PlaneStatistics> statistics_;
  std::vector<std::vector<double>> means_;
  std::vector<double> steps_;  // relative until ChooseScale
  std::vector<GroupSpec> groups_;
  DivergenceModel divergence_;
  Calibration calibration_;
  CalibrateReport report_;
};

absl::Status Calibrator::MeasurePlanesAndSteps() {
  const size_t num_planes = contexts_.geometry.planes.size();
  if (!options_.sensitivities.empty()) {
    sensitivities_ = SmoothSensitivities(contexts_.geometry, options_.sensitivities);
  }
  ASSIGN_OR_RETURN(weights_, MakeQueryWeights(contexts_, options_.queries));
  ASSIGN_OR_RETURN(statistics_,
                   MeasurePlanes(contexts_, split_, options_.sink_tokens, [&](size_t done) {
                     Report("measuring planes", done, num_planes);
                   }));
  for (const PlaneStatistics& plane : statistics_) means_.push_back(plane.means);
  ASSIGN_OR_RETURN(RelativeSteps steps,
                   ChooseRelativeSteps(contexts_, statistics_, sensitivities_));
  steps_ = std::move(steps.steps);
  report_.warnings = std::move(steps.warnings);
  return absl::OkStatus();
}

absl::Status Calibrator::CheckGroups(const std::vector<GroupSpec>& groups) const {
  size_t largest = 0;
  for (const GroupSpec& group : groups) {
    largest = std::max(largest, ChannelsOf(contexts_.geometry, steps_, group).count);
  }
  const uint64_t limit = std::min<uint64_t>(options_.max_macs_per_element, kMaxTransformChannels);
  if (largest > limit) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a group would have ", largest, " channels, more than ", limit, "; fewer --group-layers"));
  }
  const uint64_t bytes = BasisBytes(contexts_.geometry, steps_, groups);
  if (bytes > options_.max_profile_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the profile would have ", bytes, " bytes, more than ",
                     options_.max_profile_bytes, "; fewer --group-layers or --max-profile-bytes"));
  }
  if (split_.training_tokens < kMinTokensPerChannel * largest) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", largest, " channels needs ", kMinTokensPerChannel * largest,
                     " tokens to learn from, and there are ", split_.training_tokens,
                     "; give more contexts, or fewer --group-layers"));
  }
  return absl::OkStatus();
}

absl::Status Calibrator::ChooseGroups() {
  report_.group_layers = options_.group_layers;
  if (options_.group_layers == 0) {
    // More layers never cost rate, so the most that the limits admit.
    report_.group_layers = CountModelLayers(contexts_.geometry);
    while (report_.group_layers > 1 &&
           !CheckGroups(MakeGroups(contexts_.geometry, report_.group_layers)).ok()) {
      --report_.group_layers;
    }
  }
  groups_ = MakeGroups(contexts_.geometry, report_.group_layers);
  return CheckGroups(groups_);
}

absl::Status Calibrator::LearnBases() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Report("learning bases", g, groups_.size());
    const GroupChannels group = ChannelsOf(contexts_.geometry, steps_, groups_[g]);
    ASSIGN_OR_RETURN(Dense<double> covariance,
                     MeasureCovariance(reader_, group, split_.training, NormalisationOf(steps_)));
    ApplyWeights(weights_, group, covariance);
    ASSIGN_OR_RETURN(GroupBasis basis, MakeBasis(weights_, group, std::move(covariance)));
    RETURN_IF_ERROR(SampleDivergence(group, basis));
    GroupCalibration& result = calibration_.groups.emplace_back();
    result.basis = std::move(basis.basis);
    for (size_t plane : group.planes) {
      result.means.insert(result.means.end(), means_[plane].begin(), means_[plane].end());
    }
  }
  return absl::OkStatus();
}

absl::Status Calibrator::SampleDivergence(const GroupChannels& group, const GroupBasis& basis) {
  if (sensitivities_.empty()) return absl::OkStatus();
  constexpr size_t kSampledChunks = 16;
  constexpr size_t kPerChunk = DivergenceModel::kSamples / kSampledChunks;
  Dense<float> samples(group.count, 0), y;
  const std::vector<TokenSpan> spans = Thin(split_.training, kSampledChunks);
  samples = Dense<float>(group.count, spans.size() * kPerChunk);
  for (size_t s = 0; s < spans.size(); ++s) {
    RETURN_IF_ERROR(
        ReadNormalised(reader_, group, spans[s], options_.sink_tokens, means_, steps_, y));
    for (size_t channel = 0; channel < group.count; ++channel) {
      for (size_t k = 0; k < kPerChunk; ++k) {
        samples.row(channel)[s * kPerChunk + k] =
            y.row(channel)[(2 * k + 1) * y.columns / (2 * kPerChunk)];
      }
    }
  }
  std::vector<double> harm;
  for (size_t plane : group.planes) {
    harm.push_back(sensitivities_[plane] * steps_[plane] * steps_[plane]);
  }
  Dense<float> coefficients(group.count, samples.columns);
  Multiply(MakeAnalysis(weights_, group, basis.basis), samples, coefficients);
  divergence_.Add(basis, harm, std::move(coefficients));
  return absl::OkStatus();
}

void Calibrator::ChooseScale() {
  const double scale = sensitivities_.empty()
                           ? kReferenceScale * std::sqrt(options_.target_kl / kDefaultTargetKl)
                           : divergence_.SolveScale(options_.target_kl);
  for (double& step : steps_) step *= scale;
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
  return Profile::Calibrated(contexts_.geometry, steps_, groups_, options_.sink_tokens,
                             std::move(calibration));
}

absl::StatusOr<CalibrateResult> Calibrator::Run() {
  RETURN_IF_ERROR(MeasurePlanesAndSteps());
  RETURN_IF_ERROR(ChooseGroups());
  RETURN_IF_ERROR(LearnBases());
  ChooseScale();
  RETURN_IF_ERROR(LearnClasses());
  ASSIGN_OR_RETURN(const Profile draft, MakeProfile(std::vector<LevelQuality>(kLevels)));
  const HeldOutJudge judge = {contexts_, split_.held_out, statistics_, sensitivities_, weights_};
  ASSIGN_OR_RETURN(auto levels, MeasureQuality(draft, judge, [&](size_t done) {
                     Report("judging chunks", done, split_.held_out.size());
                   }));
  ASSIGN_OR_RETURN(Profile profile, MakeProfile(std::move(levels)));
  return CalibrateResult{std::move(profile), std::move(report_)};
}

}  // namespace

absl::StatusOr<CalibrateResult> Calibrate(const Contexts& contexts, const CalibrateOptions& options,
                                          const CalibrateProgress& progress) {
  RETURN_IF_ERROR(contexts.Validate());
  return Calibrator(contexts, options, progress).Run();
}

}  // namespace sluice::codec
