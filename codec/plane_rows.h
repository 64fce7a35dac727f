// Between a plane's elements, token by token, and float rows, channel by channel.
//
// A head's rows are [head_dim][num_tokens]. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/geometry.h"

namespace sluice::codec {

// Reads head `head` of `plane`, [num_heads][num_tokens][head_dim], into `rows`.
// REQUIRES: IsQuantisable(spec.element_type), and the spans have those sizes.
void ReadHeadRows(const PlaneSpec& spec, uint32_t num_tokens, std::span<const std::byte> plane,
                  size_t head, std::span<float> rows);

// Writes `rows` as head `head` of `plane`, rounded to its element type.
void WriteHeadRows(const PlaneSpec& spec, uint32_t num_tokens, std::span<const float> rows,
                   size_t head, std::span<std::byte> plane);

}  // namespace sluice::codec
