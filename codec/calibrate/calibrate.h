// Calibration: from contexts of a model to its profile.
//
// Blocks for seconds to minutes and uses all cores. Memory grows with the square of the channels of
// a group, not with the contexts: these are read again for each group. The same input gives the
// same bytes, on machines with the same number and kind of cores.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/calibrate/contexts.h"
#include "codec/profile.h"

namespace sluice::codec {

inline constexpr double kDefaultTargetKl = 0.0008;
inline constexpr uint64_t kDefaultMaxProfileBytes = uint64_t{512} << 20;
inline constexpr uint64_t kDefaultMaxMacsPerElement = 4096;
// Tokens for each channel of a group: fewer are refused, and with fewer than the second number it
// is measured whether smaller groups do better.
inline constexpr uint64_t kMinTokensPerChannel = 2;
inline constexpr uint64_t kAmpleTokensPerChannel = 8;

struct CalibrateOptions {
  // What the finest level may cost, in nats.
  double target_kl = kDefaultTargetKl;
  // [plane]: nats for each unit of variance added to it; empty: guessed from the contexts.
  std::vector<double> sensitivities;
  // [plane]: second moments of the queries, [num_heads][head_dim][head_dim], or nothing; empty:
  // guessed from the keys.
  std::vector<std::vector<float>> queries;
  std::optional<uint32_t> sink_tokens;  // none: chosen by what first tokens look like
  uint32_t group_layers = 0;  // model layers of a group; 0: chosen by the limits that follow
  uint64_t max_profile_bytes = kDefaultMaxProfileBytes;
  // A group's channels: what decoding an element costs.
  uint64_t max_macs_per_element = kDefaultMaxMacsPerElement;
};

// What is being done, and how far it is.
using CalibrateProgress =
    std::function<void(const std::string& what, uint64_t done, uint64_t total)>;

struct CalibrateReport {
  uint32_t group_layers = 0;
  // Sizes of groups that were tried, and bits per element of each on held-out tokens, about. Empty
  // if there was no choice to make.
  std::vector<std::pair<uint32_t, double>> tried_group_layers;
  uint64_t needed_tokens = 0;  // fewer to learn from are refused with these groups
  uint64_t held_out_tokens = 0;
  std::vector<std::string> warnings;
};

struct CalibrateResult {
  Profile profile;
  CalibrateReport report;
};

// Errors name the context, plane and token, or the option and what it should be. OutOfRange: no
// steps are coarse enough for the target KL. `progress` may be null; it is called from this thread.
absl::StatusOr<CalibrateResult> Calibrate(const Contexts& contexts, const CalibrateOptions& options,
                                          const CalibrateProgress& progress);

}  // namespace sluice::codec
