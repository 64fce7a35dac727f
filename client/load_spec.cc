#include "client/load_spec.h"

#include <algorithm>
#include <utility>

namespace sluice::client {
namespace {

// Decoding a group takes about four times its output: for symbols, coefficients and sums.
constexpr uint64_t kScratchPerOutputByte = 4;

// A load that has less of the SLO, because of what the engine computes after it, cannot save the
// SLO. It goes on for this part of it, for what is loaded by then need not be computed as well.
constexpr double kLeastShare = 0.1;
constexpr double kLostShare = 0.5;

double Share(adapt::TimeUs part_us, adapt::TimeUs all_us) {
  return all_us > 0 ? static_cast<double>(part_us) / static_cast<double>(all_us) : 1;
}

adapt::TimeUs Scaled(adapt::TimeUs compute_us, double scale) {
  return static_cast<adapt::TimeUs>(static_cast<double>(compute_us) * scale);
}

}  // namespace

uint64_t FrameQueueBytes(uint64_t memory_limit_bytes) {
  return std::clamp<uint64_t>(memory_limit_bytes / 8, kMaxFrameBytes, 16 * kMaxFrameBytes);
}

LoadTerms MakeTerms(const Loader::Config& config, const codec::Profile& profile,
                    const LoadOptions& options, size_t decode_threads, adapt::TimeUs start_us) {
  LoadTerms terms;
  terms.start_us = start_us;
  terms.slo_us =
      absl::ToInt64Microseconds(std::clamp(options.slo, absl::ZeroDuration(), kMaxLoadTime));
  terms.limit_us =
      std::max(terms.slo_us, absl::ToInt64Microseconds(std::min(options.limit, kMaxLoadTime)));
  for (size_t group = 0; group < profile.groups().size(); ++group) {
    terms.chunk_bytes += GroupBytes(profile, group, options.chunk_tokens);
  }
  const uint64_t scratch =
      kScratchPerOutputByte * decode_threads * LargestGroupBytes(profile, options.chunk_tokens);
  // One frame waits, one is being read.
  const uint64_t frames = FrameQueueBytes(config.memory_limit_bytes) + 2 * kMaxFrameBytes;
  const uint64_t limit = config.memory_limit_bytes;
  terms.memory_bytes = limit > scratch + frames ? limit - scratch - frames : 1;
  return terms;
}

adapt::TimeUs ComputeAllUs(const LoadOptions& options, double compute_scale) {
  adapt::TimeUs compute_us = 0;
  for (size_t i = options.skip_chunks; i < options.chunk_keys.size(); ++i) {
    compute_us += options.compute_us[i];
  }
  return Scaled(compute_us, compute_scale);
}

bool WorthAsking(const LoadOptions& options, double compute_scale, const adapt::LinkView& link) {
  if (options.capability == adapt::RecomputeCapability::kNone || options.compute_us.empty()) {
    return true;
  }
  // Lookup and first base take a round trip each.
  return ComputeAllUs(options, compute_scale) > 2 * link.rtt_us;
}

adapt::LoadSpec MakeSpec(const LoadTerms& terms, const Loader::Config& config,
                         const LoadOptions& options, double compute_scale) {
  adapt::LoadSpec spec;
  spec.start_us = terms.start_us;
  spec.slo_us = terms.slo_us;
  spec.limit_us = terms.limit_us;
  spec.reserve_us = std::min(absl::ToInt64Microseconds(config.reserve), terms.slo_us / 4);
  spec.reserve_us =
      std::min(spec.reserve_us + Scaled(options.tail_us, compute_scale), terms.slo_us);
  if (Share(terms.slo_us - spec.reserve_us, terms.slo_us) < kLeastShare) {
    spec.reserve_us = Scaled(terms.slo_us, 1 - kLostShare);
  }
  spec.capability = options.capability;
  spec.loss_stop = config.loss_stop;
  spec.memory_bytes = terms.memory_bytes;
  spec.weight = options.weight;
  return spec;
}

void AddChunk(const LoadTerms& terms, const LoadOptions& options, const DecodePool& pool,
              uint32_t chunk_index, ChunkPlan& plan, adapt::LoadSpec& spec) {
  for (size_t i = spec.decode_us.size(); i < plan.steps.size(); ++i) {
    spec.decode_us.push_back(pool.DecodeUs(plan.steps[i].level, terms.chunk_bytes));
  }
  spec.chunks.push_back(std::move(plan.ladder));
  if (!options.compute_us.empty()) spec.compute_us.push_back(options.compute_us[chunk_index]);
}

}  // namespace sluice::client
