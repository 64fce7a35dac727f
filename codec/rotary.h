// Rotary embeddings: turning keys back to position 0, where they change slowly along tokens, and
// forward again.
//
// Rotation works on rows: row d of a head is dimension d over all tokens of a chunk, so that a turn
// is a loop over tokens. TokenRotation has the same numbers token by token. Both are immutable
// after construction, thread-safe.
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

class TokenRotation {
 public:
  // As Rotation's.
  TokenRotation(const RotaryTable& table, uint32_t start_token, uint32_t num_tokens);

  RotaryLayout layout() const { return layout_; }
  size_t first_dim() const { return first_dim_; }
  size_t num_pairs() const { return num_pairs_; }
  size_t num_tokens() const { return num_tokens_; }
  // [num_pairs] of a token. REQUIRES: token < num_tokens().
  const float* cosines(size_t token) const { return cosines_.data() + token * num_pairs_; }
  const float* sines(size_t token) const { return sines_.data() + token * num_pairs_; }

 private:
  RotaryLayout layout_;
  size_t first_dim_;
  size_t num_pairs_;
  size_t num_tokens_;
  std::vector<float> cosines_;  // [num_tokens][num_pairs]
  std::vector<float> sines_;
};

}  // namespace sluice::codec
