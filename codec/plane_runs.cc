#include "codec/plane_runs.h"

#include <cstring>
#include <type_traits>

namespace sluice::codec {
namespace {

// Units of a row that are copied for all tokens before the next: they touch as many cache lines.
constexpr size_t kPieceUnits = 16;

size_t RowBytes(const PlaneSpec& spec) { return spec.head_dim * ElementBytes(spec.element_type); }

// A packed row: units of bytes that lie together, in tiles.
struct PackedRow {
  size_t unit_bytes = 0;
  size_t tile_units = 0;
  size_t unit_stride = 0;
  size_t num_tiles = 1;
  size_t tile_stride = 0;
};

PackedRow MakePackedRow(const PlaneSpec& spec, const RunTiles& tiles) {
  const size_t element = ElementBytes(spec.element_type);
  const size_t dim_tile = tiles.dim_tile == 0 ? spec.head_dim : tiles.dim_tile;
  const size_t num_tiles = spec.head_dim / dim_tile;
  if (tiles.dim_stride == 0 || tiles.dim_stride == element) {
    return {dim_tile * element, num_tiles, tiles.dim_tile_stride};
  }
  return {element, dim_tile, tiles.dim_stride, num_tiles, tiles.dim_tile_stride};
}

// Copies between values and a run, to the one that is not const.
template <typename Value>
void Copy(Value* value, std::byte* run, size_t bytes) {
  if constexpr (std::is_const_v<Value>) {
    std::memcpy(run, value, bytes);
  } else {
    std::memcpy(value, run, bytes);
  }
}

// One head of `count` tokens that begin at `first` of their run. `kUnitBytes` is the row's
// unit_bytes, or 0: any.
template <size_t kUnitBytes, typename Value>
void CopyUnits(const PackedRow& row, const PlaneRuns& plane, Value* values, std::byte* run,
               size_t first, size_t count) {
  const size_t unit_bytes = kUnitBytes == 0 ? row.unit_bytes : kUnitBytes;
  const size_t row_bytes = row.num_tiles * row.tile_units * unit_bytes;
  const size_t token_tile = plane.tiles.token_tile == 0 ? plane.run_tokens : plane.tiles.token_tile;
  for (size_t tile = 0; tile < row.num_tiles; ++tile) {
    for (size_t begin = 0; begin < row.tile_units; begin += kPieceUnits) {
      const size_t units = std::min(kPieceUnits, row.tile_units - begin);
      Value* from = values + (tile * row.tile_units + begin) * unit_bytes;
      std::byte* const piece = run + tile * row.tile_stride + begin * row.unit_stride;
      for (size_t t = first; t < first + count; ++t) {
        std::byte* at = piece + t / token_tile * plane.tiles.token_tile_stride +
                        t % token_tile * plane.token_stride;
        for (size_t unit = 0; unit < units; ++unit) {
          Copy(from + unit * unit_bytes, at + unit * row.unit_stride, unit_bytes);
        }
        from += row_bytes;
      }
    }
  }
}

template <typename Value>
void CopyPacked(const PackedRow& row, const PlaneRuns& plane, Value* values, std::byte* run,
                size_t first, size_t count) {
  switch (row.unit_bytes) {
    case 2:
      return CopyUnits<2>(row, plane, values, run, first, count);
    case 4:
      return CopyUnits<4>(row, plane, values, run, first, count);
    case 8:
      return CopyUnits<8>(row, plane, values, run, first, count);
    default:
      return CopyUnits<0>(row, plane, values, run, first, count);
  }
}

template <typename Value>
void CopyRows(size_t row_bytes, size_t token_stride, Value* values, std::byte* row, size_t count) {
  if (token_stride == row_bytes) return Copy(values, row, count * row_bytes);
  for (size_t t = 0; t < count; ++t) {
    Copy(values, row, row_bytes);
    values += row_bytes;
    row += token_stride;
  }
}

// `values` is [head][tokens][dim].
template <typename Value>
void CopyPlane(const PlaneSpec& spec, Value* values, TokenInterval tokens, const PlaneRuns& plane) {
  const size_t row_bytes = RowBytes(spec);
  const size_t head_bytes = (tokens.end - tokens.begin) * row_bytes;
  const bool whole_rows = HasWholeRows(spec, plane);
  const PackedRow packed = MakePackedRow(spec, plane.tiles);
  ForEachRun(plane, tokens, [&](TokenInterval part, std::byte* run, size_t first) {
    const size_t count = part.end - part.begin;
    Value* of_head = values + (part.begin - tokens.begin) * row_bytes;
    for (size_t head = 0; head < spec.num_heads; ++head) {
      if (whole_rows) {
        CopyRows(row_bytes, plane.token_stride, of_head, run + first * plane.token_stride, count);
      } else {
        CopyPacked(packed, plane, of_head, run, first, count);
      }
      of_head += head_bytes;
      run += plane.head_stride;
    }
  });
}

}  // namespace

bool HasWholeRows(const PlaneSpec& spec, const PlaneRuns& plane) {
  const RunTiles& tiles = plane.tiles;
  const PackedRow row = MakePackedRow(spec, tiles);
  const bool whole =
      row.num_tiles == 1 && (row.tile_units == 1 || row.unit_stride == row.unit_bytes);
  const bool even = tiles.token_tile == 0 || tiles.token_tile >= plane.run_tokens ||
                    tiles.token_tile_stride == tiles.token_tile * plane.token_stride;
  return whole && even;
}

PlaneRuns DenseRuns(const PlaneSpec& spec, size_t num_tokens, std::byte* const& data) {
  return {std::span(&data, 1), num_tokens, num_tokens * RowBytes(spec), RowBytes(spec)};
}

std::span<std::byte> WholePlane(const PlaneSpec& spec, size_t num_tokens, const PlaneRuns& plane) {
  const size_t row_bytes = RowBytes(spec);
  const bool whole = plane.run_tokens >= num_tokens && plane.token_stride == row_bytes &&
                     HasWholeRows(spec, plane) &&
                     (spec.num_heads == 1 || plane.head_stride == num_tokens * row_bytes);
  if (!whole) return {};
  return {plane.runs[0], num_tokens * spec.bytes_per_token()};
}

void CopyToRuns(const PlaneSpec& spec, std::span<const std::byte> values, TokenInterval tokens,
                const PlaneRuns& plane) {
  CopyPlane(spec, values.data(), tokens, plane);
}

void CopyFromRuns(const PlaneSpec& spec, const PlaneRuns& plane, TokenInterval tokens,
                  std::span<std::byte> values) {
  CopyPlane(spec, values.data(), tokens, plane);
}

}  // namespace sluice::codec
