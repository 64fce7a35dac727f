// What calibration learns from: whole contexts in memory or in mapped files.
//
// Plain values. Immutable while a calibration runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "codec/geometry.h"

namespace sluice::codec {

struct TrainingContext {
  std::string name;  // for errors, such as a file's path
  uint32_t num_tokens = 0;
  uint32_t first_token = 0;  // position of the first of them; a whole context begins at 0
  // [plane]: [num_heads, num_tokens, head_dim] in the plane's element type; keys are rotated. They
  // belong to someone else.
  std::vector<std::span<const std::byte>> planes;
};

struct Contexts {
  static constexpr size_t kMaxContexts = 4096;
  static constexpr uint32_t kMaxTokens = 1 << 24;  // of a context

  Geometry geometry;
  std::vector<std::string> plane_names;  // for errors
  std::vector<TrainingContext> contexts;

  // Names the context whose shape is wrong.
  absl::Status Validate() const;
};

// Tokens at the positions [begin, end) of a context.
struct TokenSpan {
  size_t context = 0;
  uint32_t begin = 0;
  uint32_t end = 0;

  uint32_t size() const { return end - begin; }
  // Of them, the first ones that are kept exact and so are not learnt from.
  uint32_t num_sinks(uint32_t sink_tokens) const {
    return begin >= sink_tokens ? 0 : (end < sink_tokens ? end : sink_tokens) - begin;
  }
};

// What is learnt from, and what the result is judged by.
struct TokenSplit {
  std::vector<TokenSpan> training;  // chunks, and what is left at the end of a context
  std::vector<TokenSpan> held_out;
  size_t num_training_contexts = 0;
  uint64_t training_tokens = 0;  // without sinks
};

// Every eighth context is held out. Of fewer than four contexts, which all differ, it is the last
// quarter of each instead. REQUIRES: whole contexts.
TokenSplit SplitTokens(const Contexts& contexts, uint32_t sink_tokens, uint32_t chunk_tokens);

}  // namespace sluice::codec
