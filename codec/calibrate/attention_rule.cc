#include "codec/calibrate/attention_rule.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>

namespace sluice::codec {
namespace {

// Fitted to SmolLM2-135M, texts of six kinds: to the gradients of its predictions, head by head,
// and to what noise in each plane does to them. The cost is of an error as large as the head's own
// spread, by how much its scores vary relative to those of other heads.
constexpr double kKeyExponent = 1.5;
constexpr double kValueExponent = 1;
constexpr double kDecay = 4;    // of values, over the depth of the model
constexpr double kCost = 2e-3;  // nats, of a usual head halfway
// Of a plane's mean, what each of its heads costs at least, about: leaving out a head that hardly
// looks at anything still does harm.
constexpr double kEvenShare = 0.2;
constexpr double kMaxSharpness = 32;

void AveragePair(std::span<float> channels, size_t a, size_t b) {
  channels[a] = channels[b] = (channels[a] + channels[b]) / 2;
}

void AveragePairs(const RotaryTable& table, std::span<float> head) {
  const size_t pairs = table.inverse_frequencies.size();
  for (size_t p = 0; p < pairs; ++p) {
    if (table.layout == RotaryLayout::kHalf) {
      AveragePair(head, table.first_dim + p, table.first_dim + p + pairs);
    } else {
      AveragePair(head, table.first_dim + 2 * p, table.first_dim + 2 * p + 1);
    }
  }
}

double MeanVariance(const PlaneStatistics& plane, size_t first, size_t count) {
  double sum = 0;
  for (double variance : std::span(plane.variances).subspan(first, count)) sum += variance;
  return sum / static_cast<double>(count);
}

// Of each head of keys, the variance of its attention scores.
std::vector<double> ScoreVariances(const PlaneSpec& spec, const PlaneStatistics& plane,
                                   std::span<const float> queries) {
  const size_t dim = spec.head_dim;
  std::vector<double> result;
  for (size_t head = 0; head < spec.num_heads; ++head) {
    double& sum = result.emplace_back(0);
    for (size_t d = 0; d < dim; ++d) {
      sum += queries[(head * dim + d) * dim + d] * plane.variances[head * dim + d];
    }
    sum /= static_cast<double>(dim);
  }
  return result;
}

// By model layer: of each head of keys, its score variance relative to the geometric mean of all.
std::map<uint32_t, std::vector<double>> Sharpness(const Contexts& contexts,
                                                  std::span<const PlaneStatistics> statistics,
                                                  std::span<const std::vector<float>> queries) {
  std::map<uint32_t, std::vector<double>> by_layer;
  double sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < statistics.size(); ++i) {
    if (queries.empty() || queries[i].empty() || statistics[i].variances.empty()) continue;
    const PlaneSpec& spec = contexts.geometry.planes[i];
    std::vector<double> heads = ScoreVariances(spec, statistics[i], queries[i]);
    for (double variance : heads) {
      if (!(variance > 0)) continue;
      sum += std::log(variance);
      ++count;
    }
    by_layer[spec.model_layer] = std::move(heads);
  }
  const double mean = count == 0 ? 1 : std::exp(sum / static_cast<double>(count));
  for (auto& [layer, heads] : by_layer) {
    for (double& variance : heads) {
      variance = std::clamp(variance / mean, 1 / kMaxSharpness, kMaxSharpness);
    }
  }
  return by_layer;
}

}  // namespace

std::vector<std::vector<float>> GuessQueries(const Contexts& contexts,
                                             std::span<const PlaneStatistics> statistics) {
  std::vector<std::vector<float>> queries(statistics.size());
  for (size_t i = 0; i < statistics.size(); ++i) {
    const PlaneSpec& spec = contexts.geometry.planes[i];
    const PlaneStatistics& plane = statistics[i];
    if (spec.kind != PlaneKind::kKey || plane.constant || plane.means.empty()) continue;
    const size_t dim = spec.head_dim;
    queries[i].resize(spec.channels() * dim);
    for (size_t head = 0; head < spec.num_heads; ++head) {
      std::vector<float> squares(dim);
      for (size_t d = 0; d < dim; ++d) {
        const double mean = plane.means[head * dim + d];
        squares[d] = static_cast<float>(plane.variances[head * dim + d] + mean * mean);
      }
      if (spec.rotary_table >= 0) {
        AveragePairs(contexts.geometry.rotary_tables[spec.rotary_table], squares);
      }
      for (size_t d = 0; d < dim; ++d) queries[i][(head * dim + d) * dim + d] = squares[d];
    }
  }
  return queries;
}

std::vector<std::vector<double>> GuessSensitivities(const Contexts& contexts,
                                                    std::span<const PlaneStatistics> statistics,
                                                    std::span<const std::vector<float>> queries) {
  const auto sharpness = Sharpness(contexts, statistics, queries);
  const double last_layer = contexts.geometry.planes.back().model_layer;
  std::vector<std::vector<double>> result(statistics.size());
  for (size_t i = 0; i < statistics.size(); ++i) {
    if (statistics[i].variances.empty() || statistics[i].constant) continue;
    const PlaneSpec& spec = contexts.geometry.planes[i];
    const double depth = last_layer == 0 ? 0.5 : spec.model_layer / last_layer;
    const auto heads = sharpness.find(spec.model_layer);
    const bool key = spec.kind == PlaneKind::kKey;
    const double floor = statistics[i].rms * statistics[i].rms / kMaxSharpness;
    for (size_t head = 0; head < spec.num_heads; ++head) {
      double sharp = 1;
      if (heads != sharpness.end()) {
        sharp = heads->second[head * heads->second.size() / spec.num_heads];
      }
      const double variance =
          std::max(MeanVariance(statistics[i], head * spec.head_dim, spec.head_dim), floor);
      const double share = key ? std::pow(sharp, kKeyExponent)
                               : std::pow(sharp, kValueExponent) * std::exp(kDecay * (0.5 - depth));
      result[i].push_back(kCost * share / variance);
    }
    const double mean = std::accumulate(result[i].begin(), result[i].end(), 0.0) /
                        static_cast<double>(result[i].size());
    for (double& cost : result[i]) cost = (cost + kEvenShare * mean) / (1 + kEvenShare);
  }
  return result;
}

}  // namespace sluice::codec
