// Bit-exact coding of one plane of any element type: split into byte planes, each a run of byte
// blocks. Used for the lossless layer, for planes with NaN or Inf and for sink tokens. Byte layout:
// FORMAT.md, section "Exact planes".
//
// Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "codec/bytes.h"
#include "codec/geometry.h"

namespace sluice::codec {

// Appends `plane`, [num_heads, num_tokens, head_dim] without gaps.
// REQUIRES: plane.size() == num_tokens * spec.bytes_per_token().
void EncodeExactPlane(const PlaneSpec& spec, uint32_t num_tokens, std::span<const std::byte> plane,
                      ByteWriter& writer);

// Reads what EncodeExactPlane wrote into `plane`. `field` names it in errors; on error the contents
// of `plane` are unspecified. REQUIRES: plane.size() == num_tokens * spec.bytes_per_token().
absl::Status DecodeExactPlane(std::string_view field, const PlaneSpec& spec, uint32_t num_tokens,
                              ByteReader& reader, std::span<std::byte> plane);

}  // namespace sluice::codec
