#include "codec/calibrate/plane_statistics.h"

#include <algorithm>
#include <cmath>

#include "codec/calibrate/channel_reader.h"
#include "codec/elements.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

struct ChannelSums {
  double sum = 0;
  double squares = 0;
};

absl::StatusOr<PlaneStatistics> MeasurePlane(const Contexts& contexts, const TokenSplit& split,
                                             uint32_t sink_tokens, size_t plane,
                                             ChannelReader& reader) {
  const PlaneSpec& spec = contexts.geometry.planes[plane];
  std::vector<ChannelSums> sums(spec.channels());
  std::vector<float> rows;
  const auto read = [&](const TokenSpan& span) {
    rows.resize(spec.channels() * span.size());
    return reader.ReadPlane(span, plane, rows);
  };
  for (const TokenSpan& span : split.training) {
    RETURN_IF_ERROR(read(span));
    const size_t num_sinks = span.num_sinks(sink_tokens);
    for (size_t channel = 0; channel < sums.size(); ++channel) {
      const auto row = std::span(rows).subspan(channel * span.size(), span.size());
      for (double value : row.subspan(num_sinks)) {
        sums[channel].sum += value;
        sums[channel].squares += value * value;
      }
    }
  }
  for (const TokenSpan& span : split.held_out) RETURN_IF_ERROR(read(span));

  PlaneStatistics statistics;
  const auto count = static_cast<double>(split.training_tokens);
  double variance = 0;
  double largest_mean = 0;
  for (const ChannelSums& channel : sums) {
    const double mean = channel.sum / count;
    statistics.means.push_back(mean);
    statistics.variances.push_back(std::max(0.0, channel.squares / count - mean * mean));
    variance += statistics.variances.back();
    largest_mean = std::max(largest_mean, std::abs(mean));
  }
  statistics.rms = std::sqrt(variance / static_cast<double>(sums.size()));
  statistics.constant = statistics.rms <= RoundingError(spec.element_type, largest_mean);
  return statistics;
}

}  // namespace

absl::StatusOr<std::vector<PlaneStatistics>> MeasurePlanes(
    const Contexts& contexts, const TokenSplit& split, uint32_t sink_tokens,
    const std::function<void(size_t)>& done) {
  std::vector<PlaneStatistics> statistics(contexts.geometry.planes.size());
  ChannelReader reader(contexts);
  for (size_t i = 0; i < statistics.size(); ++i) {
    if (IsQuantisable(contexts.geometry.planes[i].element_type)) {
      ASSIGN_OR_RETURN(statistics[i], MeasurePlane(contexts, split, sink_tokens, i, reader));
    }
    done(i + 1);
  }
  return statistics;
}

}  // namespace sluice::codec
