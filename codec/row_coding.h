// Rows of symbols to and from rANS substreams.
//
// A row is a channel over the tokens of a chunk; its class picks its table, and rows of class 0 are
// not coded at all. Within a row, token t belongs to lane t % kLanes; a short last step leaves the
// lanes past the end alone. The coded rows of a layer are cut into runs of consecutive rows, each a
// substream of its own. Byte layout: FORMAT.md, section "Lossy segments".
//
// Pure functions, thread-safe. Everywhere `values` is [classes.size()][num_tokens].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "codec/bytes.h"
#include "codec/class_tables.h"

namespace sluice::codec {

// Symbols that the encoder puts into a substream, about. Each costs 136 bytes, but the four of a
// big segment are decoded two to three times as fast as one would be.
inline constexpr size_t kSubstreamSymbols = 1 << 17;
// What DecodeBaseRows leaves for an escaped value.
inline constexpr int16_t kEscapedValue = kEscapeSymbol - kBaseZero;

// The value at the next coarser level.
inline int16_t ParentOf(int16_t value) {
  return static_cast<int16_t>((value + (value > 0) - (value < 0)) / 3);
}

// ParentOf all `values`. REQUIRES: as many parents.
void SetParents(std::span<const int16_t> values, std::span<int16_t> parents);

// The first index from `begin` on of a base value that is escaped, or was; values.size() if there
// is none.
size_t FindEscape(std::span<const int16_t> values, size_t begin);

// Base values of -7 .. 7; any other is coded as escaped.
void EncodeBaseRows(const ClassTables& tables, std::span<const uint8_t> classes, size_t num_tokens,
                    std::span<const int16_t> values, ByteWriter& writer);
// REQUIRES (here and below): every class is at most the number of classes of the layer.
absl::Status DecodeBaseRows(const ClassTables& tables, std::span<const uint8_t> classes,
                            size_t num_tokens, ByteReader& reader, std::span<int16_t> values);

// `values` are those of the finer level: parent * 3 + refinement.
void EncodeRefinementRows(const ClassTables& tables, std::span<const uint8_t> classes,
                          size_t num_tokens, std::span<const int16_t> values, ByteWriter& writer);
// Refines `values` in place. REQUIRES: 3 * value + 1 fits for every value.
absl::Status DecodeRefinementRows(const ClassTables& tables, std::span<const uint8_t> classes,
                                  size_t num_tokens, ByteReader& reader, std::span<int16_t> values);

}  // namespace sluice::codec
