// What the planner is told of a load: its times and memory, and what its chunks take to come, to
// decode and to compute.
//
// Plain values and functions without side effects.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "adapt/load_types.h"
#include "client/decode_pool.h"
#include "client/load_plan.h"
#include "client/loader.h"
#include "codec/profile.h"

namespace sluice::client {

inline constexpr absl::Duration kMaxLoadTime = absl::Minutes(10);  // SLO and limit

// Bytes of frames that may wait in a load that may use so much memory.
uint64_t FrameQueueBytes(uint64_t memory_limit_bytes);

struct LoadTerms {
  adapt::TimeUs start_us = 0;
  adapt::TimeUs slo_us = 0;
  adapt::TimeUs limit_us = 0;
  uint64_t memory_bytes = 0;  // for segments
  uint64_t chunk_bytes = 0;   // decoded
};
LoadTerms MakeTerms(const Loader::Config& config, const codec::Profile& profile,
                    const LoadOptions& options, size_t decode_threads, adapt::TimeUs start_us);

// Forecast of the time in which the engine computes all chunks that are not skipped, with
// `compute_scale` times what was told. REQUIRES: options.compute_us is known.
adapt::TimeUs ComputeAllUs(const LoadOptions& options, double compute_scale);
// False when computing is faster than asking.
bool WorthAsking(const LoadOptions& options, double compute_scale, const adapt::LinkView& link);

// A load without chunks; they are added in context order.
adapt::LoadSpec MakeSpec(const LoadTerms& terms, const Loader::Config& config,
                         const LoadOptions& options, double compute_scale);
// Takes the plan's ladder. `chunk_index` counts from the start of the context.
void AddChunk(const LoadTerms& terms, const LoadOptions& options, const DecodePool& pool,
              uint32_t chunk_index, ChunkPlan& plan, adapt::LoadSpec& spec);

}  // namespace sluice::client
