// Where the tokens of a plane are written: in runs of tokens, each at an address of its own, as in
// the blocks of an engine's pool.
//
// Pure functions, thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "codec/geometry.h"
#include "codec/token_planes.h"

namespace sluice::codec {

// How the elements of a run are packed. A tile of 0 is all there is, of the run's tokens or of the
// head's dimensions; a dim_stride of 0 is an element's bytes.
struct RunTiles {
  size_t token_tile = 0;  // tokens
  size_t token_tile_stride = 0;
  size_t dim_tile = 0;  // dimensions; divides head_dim
  size_t dim_tile_stride = 0;
  size_t dim_stride = 0;
};

// Element (head, token, dim) is at runs[token / run_tokens] + head * head_stride, plus, with
// t = token % run_tokens, t / token_tile * token_tile_stride + t % token_tile * token_stride +
// dim / dim_tile * dim_tile_stride + dim % dim_tile * dim_stride. Strides are in bytes; any
// alignment.
struct PlaneRuns {
  std::span<std::byte* const> runs;
  size_t run_tokens = 0;
  size_t head_stride = 0;
  size_t token_stride = 0;
  RunTiles tiles = {};
};

// Is the row of a token one piece, and the next row always token_stride away?
bool HasWholeRows(const PlaneSpec& spec, const PlaneRuns& plane);

// The one run of a plane without gaps, [num_heads][num_tokens][head_dim], that begins at `data`,
// which must outlive it.
PlaneRuns DenseRuns(const PlaneSpec& spec, size_t num_tokens, std::byte* const& data);

// The plane, if it is one run without gaps; else empty.
std::span<std::byte> WholePlane(const PlaneSpec& spec, size_t num_tokens, const PlaneRuns& plane);

// Calls visit(tokens, where the run begins, the first of them within it) for the parts of runs that
// have `tokens`.
template <typename Visit>
void ForEachRun(const PlaneRuns& plane, TokenInterval tokens, Visit visit) {
  while (tokens.begin < tokens.end) {
    const size_t run = tokens.begin / plane.run_tokens;
    const size_t end = std::min(tokens.end, (run + 1) * plane.run_tokens);
    visit(TokenInterval{tokens.begin, end}, plane.runs[run], tokens.begin % plane.run_tokens);
    tokens.begin = end;
  }
}

// Copies `tokens` of `plane` from or to `values`, which has no others and no gaps.
void CopyToRuns(const PlaneSpec& spec, std::span<const std::byte> values, TokenInterval tokens,
                const PlaneRuns& plane);
void CopyFromRuns(const PlaneSpec& spec, const PlaneRuns& plane, TokenInterval tokens,
                  std::span<std::byte> values);

}  // namespace sluice::codec
