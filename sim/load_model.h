// What the simulator assumes of model, codec and engine: sizes and losses per level, prefill times.
#pragma once

#include <cstdint>
#include <vector>

#include "adapt/load_types.h"
#include "adapt/prefill_cost.h"

namespace sluice::sim {

using adapt::TimeUs;

struct LoadModel {
  uint32_t unit_tokens = 256;
  double token_bytes = 131072;  // uncompressed: Llama-3.1-8B, 16 bits
  // Compressed levels, the smallest first: share of the uncompressed bytes, loss.
  std::vector<double> size_shares = {1.0 / 16, 1.0 / 10, 1.0 / 7, 1.0 / 4.5, 1.0 / 2, 1};
  std::vector<double> losses = {.08, .03, .01, .002, .0005, 0};
  // A finer level that contains the coarser ones is larger by this.
  double embedding_overhead = 0.05;
  TimeUs first_token_us = 20000;
  double decode_bytes_per_s = 20e9;  // of output
  // Prefill alone on the GPU: start, tokens per second, attention to what lies before.
  double prefill_start_us = 3000;
  double prefill_tokens_per_s = 8000;
  double prefill_attention = 3.3e-5;

  uint32_t num_units(uint32_t tokens) const { return (tokens + unit_tokens - 1) / unit_tokens; }
  uint32_t TokensOf(uint32_t unit, uint32_t tokens) const;
  // A level of a unit by itself, without the coarser ones in it.
  uint64_t LevelBytes(size_t level, uint32_t tokens) const;
  adapt::ChunkLadder Ladder(uint32_t tokens) const;
  TimeUs DecodeUs(uint32_t tokens) const;
  TimeUs PrefillUs(uint32_t new_tokens, uint32_t context_tokens) const;
  // What an engine measures of itself when it starts.
  void Calibrate(adapt::PrefillCost& cost) const;
  // A load of `tokens`: ladders, reserve, and what `cost` forecasts.
  adapt::LoadSpec Spec(uint32_t tokens, TimeUs start_us, TimeUs slo_us,
                       const adapt::PrefillCost& cost) const;
};

}  // namespace sluice::sim
