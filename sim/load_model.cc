#include "sim/load_model.h"

#include <algorithm>
#include <cmath>

namespace sluice::sim {

uint32_t LoadModel::TokensOf(uint32_t unit, uint32_t tokens) const {
  return std::min(unit_tokens, tokens - unit * unit_tokens);
}

uint64_t LoadModel::LevelBytes(size_t level, uint32_t tokens) const {
  return static_cast<uint64_t>(std::llround(size_shares[level] * token_bytes * tokens));
}

adapt::ChunkLadder LoadModel::Ladder(uint32_t tokens) const {
  adapt::ChunkLadder ladder;
  ladder.num_tokens = tokens;
  uint64_t below = 0;
  for (size_t level = 0; level < size_shares.size(); ++level) {
    const double overhead = level == 0 ? 1 : 1 + embedding_overhead;
    const uint64_t bytes = static_cast<uint64_t>(
        std::llround(overhead * static_cast<double>(LevelBytes(level, tokens))));
    ladder.step_bytes.push_back(bytes - below);
    ladder.step_loss.push_back(losses[level]);
    below = bytes;
  }
  return ladder;
}

TimeUs LoadModel::DecodeUs(uint32_t tokens) const {
  return static_cast<TimeUs>(std::ceil(token_bytes * tokens / decode_bytes_per_s * 1e6));
}

TimeUs LoadModel::PrefillUs(uint32_t new_tokens, uint32_t context_tokens) const {
  const double linear_us = new_tokens / prefill_tokens_per_s * 1e6;
  const double seen = context_tokens + new_tokens / 2.0;
  return std::llround(prefill_start_us + linear_us * (1 + prefill_attention * seen));
}

void LoadModel::Calibrate(adapt::PrefillCost& cost) const {
  constexpr uint32_t kShapes[][2] = {{256, 0},     {256, 0},     {1024, 0},    {256, 4096},
                                     {1024, 8192}, {256, 16384}, {1024, 16384}};
  for (const auto& [new_tokens, context] : kShapes) {
    cost.OnMeasured(new_tokens, context, PrefillUs(new_tokens, context));
  }
}

adapt::LoadSpec LoadModel::Spec(uint32_t tokens, TimeUs start_us, TimeUs slo_us,
                                const adapt::PrefillCost& cost) const {
  adapt::LoadSpec spec;
  spec.start_us = start_us;
  spec.slo_us = slo_us;
  spec.reserve_us = std::min(first_token_us + DecodeUs(unit_tokens), slo_us);
  spec.decode_us = {DecodeUs(unit_tokens)};
  for (uint32_t unit = 0; unit < num_units(tokens); ++unit) {
    const uint32_t unit_size = TokensOf(unit, tokens);
    spec.chunks.push_back(Ladder(unit_size));
    if (cost.known()) spec.compute_us.push_back(cost.Forecast(unit_size, unit * unit_tokens));
  }
  return spec;
}

}  // namespace sluice::sim
