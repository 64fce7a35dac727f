// From manifests to ladders: by which steps the planner may raise a chunk.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapt/load_types.h"
#include "client/loader.h"
#include "client/remote_store.h"
#include "codec/profile.h"

namespace sluice::client {

// One step of a chunk: the layers to ask for, and the level that is reached with them.
struct ChunkStep {
  uint32_t first_layer = 0;
  uint32_t num_layers = 1;
  codec::Level level = 0;
  bool with_header = false;  // the first step of a chunk

  // Layers whose segments a decode at this level needs: [first, end).
  uint32_t first_needed_layer() const { return level == codec::kLossless ? first_layer : 0; }
  uint32_t end_layer() const { return first_layer + num_layers; }
};

// What can be loaded of one chunk; without steps: why nothing can.
struct ChunkPlan {
  std::vector<ChunkStep> steps;
  adapt::ChunkLadder ladder;  // one entry per step
  RecomputeReason reason = RecomputeReason::kNone;
  std::string message;
};

// `chunk_index` counts from the start of the context.
ChunkPlan PlanChunk(const codec::Profile& profile, const LoadOptions& options, uint32_t chunk_index,
                    const ChunkManifest& manifest);

// Bytes in which a decoded group of a chunk lies, and of the largest group.
uint64_t GroupBytes(const codec::Profile& profile, size_t group, uint32_t num_tokens);
uint64_t LargestGroupBytes(const codec::Profile& profile, uint32_t num_tokens);

}  // namespace sluice::client
