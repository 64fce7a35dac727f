// Rotary embeddings: turning keys back to position 0, where they change slowly along tokens, and
// forward again.
//
// Works on rows: row d of a head is dimension d over all tokens of a chunk, so that a turn is a
// loop over tokens. Immutable after construction, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/geometry.h"

namespace sluice::codec {

// The cosines and sines of one rotary table for the tokens of one chunk.
class Rotation {
 public:
  // Token t has position start_token + t. REQUIRES: the table belongs to a valid geometry.
  Rotation(const RotaryTable& table, uint32_t start_token, uint32_t num_tokens);

  // `rows` is [head_dim][num_tokens] of one head. Rotate turns each pair by its angle, Unrotate
  // back. REQUIRES: the head has the table's dimensions.
  void Rotate(std::span<float> rows) const;
  void Unrotate(std::span<float> rows) const;

 private:
  void Turn(std::span<float> rows, float direction) const;

  RotaryLayout layout_;
  size_t first_dim_;
  size_t num_pairs_;
  size_t num_tokens_;
  std::vector<float> cosines_;  // [num_pairs][num_tokens]
  std::vector<float> sines_;
};

}  // namespace sluice::codec
