#include "client/load_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codec/calibration.h"

namespace sluice::client {
namespace {

ChunkPlan Refused(RecomputeReason reason, std::string message) {
  ChunkPlan plan;
  plan.reason = reason;
  plan.message = std::move(message);
  return plan;
}

// Number of lossy layers, which come first.
uint32_t LossyLayers(const ChunkManifest& manifest) {
  uint32_t count = 0;
  for (const ChunkManifest::Layer& layer : manifest.layers)
    count += layer.level != codec::kLossless;
  return count;
}

std::vector<ChunkStep> ChooseSteps(const LoadOptions& options, const ChunkManifest& manifest) {
  const uint32_t lossy = LossyLayers(manifest);
  const bool has_lossless = lossy < manifest.layers.size();
  const ChunkStep lossless = {lossy, 1, codec::kLossless, false};
  std::vector<ChunkStep> steps;
  if (options.exact_level.has_value()) {
    const codec::Level level = *options.exact_level;
    if (level == codec::kLossless && has_lossless) steps.push_back(lossless);
    if (level < lossy) steps.push_back({0, level + 1u, level, false});
  } else {
    const codec::Level max_level = options.max_level.value_or(codec::kMaxLossyLevels);
    for (uint32_t layer = 0; layer < lossy && layer <= max_level; ++layer) {
      steps.push_back({layer, 1, static_cast<codec::Level>(layer), false});
    }
    if (has_lossless && (steps.empty() || max_level == codec::kLossless)) steps.push_back(lossless);
  }
  if (!steps.empty()) steps.front().with_header = true;
  return steps;
}

// What a level loses: the divergence that calibration foretold for it, which grows with the square
// of the error, corrected by the error that this chunk has; without one, the square of the error
// itself.
double LossOf(const codec::Profile& profile, const ChunkManifest::Layer& layer) {
  const double error = layer.mean_error;
  const codec::Calibration* calibration = profile.calibration();
  if (calibration == nullptr || layer.level >= calibration->levels.size()) return error * error;
  const codec::LevelQuality& quality = calibration->levels[layer.level];
  if (!(quality.predicted_kl > 0) || !(quality.mean_error > 0)) return error * error;
  const double ratio = error / quality.mean_error;
  return quality.predicted_kl * ratio * ratio;
}

}  // namespace

ChunkPlan PlanChunk(const codec::Profile& profile, const LoadOptions& options, uint32_t chunk_index,
                    const ChunkManifest& manifest) {
  if (!manifest.found || manifest.layers.empty()) {
    return Refused(RecomputeReason::kNotStored, "not stored");
  }
  const uint64_t start_token = uint64_t{chunk_index} * options.chunk_tokens;
  if (manifest.start_token != start_token || manifest.num_tokens != options.chunk_tokens) {
    return Refused(
        RecomputeReason::kDamaged,
        absl::StrCat("manifest: tokens [", manifest.start_token, ", +", manifest.num_tokens,
                     ") instead of [", start_token, ", +", options.chunk_tokens, ")"));
  }
  const size_t num_groups = profile.groups().size();
  for (const ChunkManifest::Layer& layer : manifest.layers) {
    if (layer.group_bytes.size() == num_groups) continue;
    return Refused(RecomputeReason::kUnsupported,
                   absl::StrCat("manifest: ", layer.group_bytes.size(),
                                " groups, but the profile has ", num_groups));
  }
  ChunkPlan plan;
  plan.steps = ChooseSteps(options, manifest);
  if (plan.steps.empty()) {
    return Refused(
        RecomputeReason::kNotStored,
        options.exact_level.has_value()
            ? absl::StrCat("level ", codec::LevelName(*options.exact_level), " is not stored")
            : "no level is stored");
  }
  plan.ladder.num_tokens = manifest.num_tokens;
  double loss = LossOf(profile, manifest.layers[plan.steps.front().end_layer() - 1]);
  for (const ChunkStep& step : plan.steps) {
    uint64_t bytes = step.with_header ? manifest.header_bytes : 0;
    for (uint32_t layer = step.first_layer; layer < step.end_layer(); ++layer) {
      bytes += manifest.layers[layer].bytes;
    }
    loss = std::min(loss, LossOf(profile, manifest.layers[step.end_layer() - 1]));
    plan.ladder.step_bytes.push_back(bytes);
    plan.ladder.step_loss.push_back(loss);
  }
  return plan;
}

uint64_t GroupBytes(const codec::Profile& profile, size_t group, uint32_t num_tokens) {
  const codec::GroupSpec& spec = profile.groups()[group];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < spec.num_planes; ++i) {
    bytes += profile.geometry().planes[spec.first_plane + i].bytes_per_token() * num_tokens;
  }
  return bytes;
}

uint64_t LargestGroupBytes(const codec::Profile& profile, uint32_t num_tokens) {
  uint64_t largest = 0;
  for (size_t group = 0; group < profile.groups().size(); ++group) {
    largest = std::max(largest, GroupBytes(profile, group, num_tokens));
  }
  return largest;
}

}  // namespace sluice::client
