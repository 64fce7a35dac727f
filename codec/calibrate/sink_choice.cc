#include "codec/calibrate/sink_choice.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "codec/calibrate/channel_reader.h"
#include "codec/elements.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr size_t kSearched = 16;
constexpr uint32_t kReadTokens = 256;
constexpr size_t kMaxReadContexts = 64;
// Mean square distance from the mean that no usual token has, in variances: averaged over planes
// and contexts, usual ones have 0.8 to 1.3. Tokens nearer to the mean than usual are cheap to code.
constexpr double kFar = 2;

using Distances = std::array<double, kSearched>;

// Distances of one plane, averaged over contexts, in its variances; all 0 if the plane is constant.
absl::StatusOr<Distances> MeasurePlane(const Contexts& contexts, std::span<const TokenSpan> spans,
                                       size_t plane, ChannelReader& reader) {
  const size_t channels = contexts.geometry.planes[plane].channels();
  std::vector<double> sums(channels), squares(channels);
  std::vector<float> first(spans.size() * channels * kSearched), rows;
  double count = 0;
  for (size_t s = 0; s < spans.size(); ++s) {
    const size_t num_tokens = spans[s].size();
    rows.resize(channels * num_tokens);
    RETURN_IF_ERROR(reader.ReadPlane(spans[s], plane, rows));
    for (size_t c = 0; c < channels; ++c) {
      const auto row = std::span(rows).subspan(c * num_tokens, num_tokens);
      std::ranges::copy(row.first(kSearched), first.begin() + (s * channels + c) * kSearched);
      for (double value : row.subspan(kSearched)) {
        sums[c] += value;
        squares[c] += value * value;
      }
    }
    count += static_cast<double>(num_tokens - kSearched);
  }
  Distances distances = {};
  double variance = 0;
  for (size_t c = 0; c < channels; ++c) {
    const double mean = sums[c] / count;
    variance += std::max(0.0, squares[c] / count - mean * mean);
    for (size_t s = 0; s < spans.size(); ++s) {
      for (size_t t = 0; t < kSearched; ++t) {
        const double distance = first[(s * channels + c) * kSearched + t] - mean;
        distances[t] += distance * distance / static_cast<double>(spans.size());
      }
    }
  }
  for (double& distance : distances) distance = variance > 0 ? distance / variance : 0;
  return distances;
}

}  // namespace

absl::StatusOr<uint32_t> ChooseSinkTokens(const Contexts& contexts) {
  std::vector<TokenSpan> spans;
  for (size_t i = 0; i < contexts.contexts.size() && spans.size() < kMaxReadContexts; ++i) {
    const uint32_t end = std::min(contexts.contexts[i].num_tokens, kReadTokens);
    if (end > 2 * kSearched) spans.push_back({i, 0, end});
  }
  if (spans.empty()) return Profile::kSinkTokens;
  ChannelReader reader(contexts);
  std::array<Distances, 2> sums = {};  // of keys, of the others
  std::array<double, 2> planes = {};
  for (size_t i = 0; i < contexts.geometry.planes.size(); ++i) {
    const PlaneSpec& spec = contexts.geometry.planes[i];
    if (!IsQuantisable(spec.element_type)) continue;
    ASSIGN_OR_RETURN(const Distances distances, MeasurePlane(contexts, spans, i, reader));
    const size_t kind = spec.kind == PlaneKind::kKey ? 0 : 1;
    for (size_t t = 0; t < kSearched; ++t) sums[kind][t] += distances[t];
    ++planes[kind];
  }
  uint32_t sinks = 1;
  for (uint32_t t = 0; t < kSearched; ++t) {
    for (size_t kind = 0; kind < sums.size(); ++kind) {
      if (planes[kind] > 0 && sums[kind][t] > kFar * planes[kind]) sinks = std::max(sinks, t + 1);
    }
  }
  return sinks;
}

}  // namespace sluice::codec
