#include "codec/plane_rows.h"

#include <algorithm>
#include <cstring>

#include "codec/elements.h"

namespace sluice::codec {
namespace {

// Tokens that are transposed at a time: their elements stay in the first cache.
constexpr size_t kTileTokens = 16;
constexpr size_t kTileDims = 64;
constexpr size_t kTile = kTileTokens * kTileDims;

// Calls visit(token, tokens, dim, dims) for each tile of a head.
template <typename Visit>
void ForEachTile(size_t num_tokens, size_t head_dim, Visit visit) {
  for (size_t token = 0; token < num_tokens; token += kTileTokens) {
    for (size_t dim = 0; dim < head_dim; dim += kTileDims) {
      visit(token, std::min(kTileTokens, num_tokens - token), dim,
            std::min(kTileDims, head_dim - dim));
    }
  }
}

// Element: unsigned of the element's size. Tile elements are [dim][token] with a fixed pitch.
template <typename Element>
void WriteHead(const PlaneSpec& spec, size_t num_tokens, std::span<const float> rows,
               std::byte* head) {
  Element tile[kTile];
  ForEachTile(num_tokens, spec.head_dim, [&](size_t token, size_t tokens, size_t dim, size_t dims) {
    for (size_t d = 0; d < dims; ++d) {
      FloatToElements(spec.element_type, rows.subspan((dim + d) * num_tokens + token, tokens),
                      std::as_writable_bytes(std::span(tile + d * kTileTokens, tokens)));
    }
    for (size_t t = 0; t < tokens; ++t) {
      std::byte* out = head + ((token + t) * spec.head_dim + dim) * sizeof(Element);
      for (size_t d = 0; d < dims; ++d) {
        std::memcpy(out + d * sizeof(Element), &tile[d * kTileTokens + t], sizeof(Element));
      }
    }
  });
}

}  // namespace

void ReadHeadRows(const PlaneSpec& spec, uint32_t num_tokens, std::span<const std::byte> plane,
                  size_t head, std::span<float> rows) {
  const size_t element_bytes = ElementBytes(spec.element_type);
  const size_t head_bytes = size_t{num_tokens} * spec.head_dim * element_bytes;
  const std::span<const std::byte> elements = plane.subspan(head * head_bytes, head_bytes);
  float tile[kTile];
  ForEachTile(num_tokens, spec.head_dim, [&](size_t token, size_t tokens, size_t dim, size_t dims) {
    for (size_t t = 0; t < tokens; ++t) {
      const size_t first = (token + t) * spec.head_dim + dim;
      ElementsToFloat(spec.element_type,
                      elements.subspan(first * element_bytes, dims * element_bytes),
                      std::span(tile + t * kTileDims, dims));
    }
    for (size_t d = 0; d < dims; ++d) {
      float* row = rows.data() + (dim + d) * num_tokens + token;
      for (size_t t = 0; t < tokens; ++t) row[t] = tile[t * kTileDims + d];
    }
  });
}

void WriteHeadRows(const PlaneSpec& spec, uint32_t num_tokens, std::span<const float> rows,
                   size_t head, std::span<std::byte> plane) {
  const size_t element_bytes = ElementBytes(spec.element_type);
  std::byte* first = plane.data() + head * num_tokens * spec.head_dim * element_bytes;
  if (element_bytes == sizeof(uint16_t)) return WriteHead<uint16_t>(spec, num_tokens, rows, first);
  WriteHead<uint32_t>(spec, num_tokens, rows, first);
}

}  // namespace sluice::codec
