// A made-up KV cache with the statistics that matter: channels of different scale that change
// slowly along the tokens, and rotated keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/context_input.h"

namespace sluice::cli {

struct SyntheticShape {
  uint32_t model_layers = 8;
  uint32_t num_heads = 4;
  uint32_t head_dim = 128;
  uint32_t num_tokens = 2048;
};

struct SyntheticContext {
  std::vector<std::vector<std::byte>> storage;  // what the input's planes show
  client::ContextInput input;
};

// bf16; the same values for the same seed.
SyntheticContext MakeSynthetic(const SyntheticShape& shape, uint64_t seed);

}  // namespace sluice::cli
