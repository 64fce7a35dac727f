#include "codec/plane_runs.h"

#include <cstring>

namespace sluice::codec {
namespace {

size_t RowBytes(const PlaneSpec& spec) { return spec.head_dim * ElementBytes(spec.element_type); }

}  // namespace

PlaneRuns DenseRuns(const PlaneSpec& spec, size_t num_tokens, std::byte* const& data) {
  return {std::span(&data, 1), num_tokens, num_tokens * RowBytes(spec), RowBytes(spec)};
}

std::span<std::byte> WholePlane(const PlaneSpec& spec, size_t num_tokens, const PlaneRuns& plane) {
  const size_t row_bytes = RowBytes(spec);
  const bool whole = plane.run_tokens >= num_tokens && plane.token_stride == row_bytes &&
                     (spec.num_heads == 1 || plane.head_stride == num_tokens * row_bytes);
  if (!whole) return {};
  return {plane.runs[0], num_tokens * spec.bytes_per_token()};
}

void CopyToRuns(const PlaneSpec& spec, std::span<const std::byte> values, size_t num_tokens,
                const PlaneRuns& plane) {
  const size_t row_bytes = RowBytes(spec);
  ForEachRun(plane, {0, num_tokens}, [&](TokenInterval tokens, std::byte* run) {
    const size_t count = tokens.end - tokens.begin;
    for (size_t head = 0; head < spec.num_heads; ++head) {
      const std::byte* from = values.data() + (head * num_tokens + tokens.begin) * row_bytes;
      std::byte* to = run + head * plane.head_stride;
      if (plane.token_stride == row_bytes) {
        std::memcpy(to, from, count * row_bytes);
        continue;
      }
      for (size_t t = 0; t < count; ++t) {
        std::memcpy(to, from, row_bytes);
        from += row_bytes;
        to += plane.token_stride;
      }
    }
  });
}

}  // namespace sluice::codec
