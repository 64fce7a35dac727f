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

// Element (head, token, dim) is at runs[token / run_tokens] + head * head_stride +
// token % run_tokens * token_stride + dim * element bytes. Strides are in bytes; any alignment.
struct PlaneRuns {
  std::span<std::byte* const> runs;
  size_t run_tokens = 0;
  size_t head_stride = 0;
  size_t token_stride = 0;
};

// The one run of a plane without gaps, [num_heads][num_tokens][head_dim], that begins at `data`,
// which must outlive it.
PlaneRuns DenseRuns(const PlaneSpec& spec, size_t num_tokens, std::byte* const& data);

// The plane, if it is one run without gaps; else empty.
std::span<std::byte> WholePlane(const PlaneSpec& spec, size_t num_tokens, const PlaneRuns& plane);

// Calls visit(tokens, where the first of them is, head 0) for the parts of runs that have `tokens`.
template <typename Visit>
void ForEachRun(const PlaneRuns& plane, TokenInterval tokens, Visit visit) {
  while (tokens.begin < tokens.end) {
    const size_t run = tokens.begin / plane.run_tokens;
    const size_t end = std::min(tokens.end, (run + 1) * plane.run_tokens);
    visit(TokenInterval{tokens.begin, end},
          plane.runs[run] + tokens.begin % plane.run_tokens * plane.token_stride);
    tokens.begin = end;
  }
}

// Copies the first `num_tokens` tokens of `plane` from `values`, which has no others and no gaps.
void CopyToRuns(const PlaneSpec& spec, std::span<const std::byte> values, size_t num_tokens,
                const PlaneRuns& plane);

}  // namespace sluice::codec
