#include "codec/calibrate/group_basis.h"

#include <algorithm>
#include <utility>

#include "codec/elements.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

// Tokens that are summed at a time.
constexpr uint32_t kBatchTokens = 2048;

// Spans that follow each other become one, of at most a batch.
std::vector<TokenSpan> Join(std::span<const TokenSpan> spans) {
  std::vector<TokenSpan> joined;
  for (const TokenSpan& span : spans) {
    const bool follows =
        !joined.empty() && joined.back().context == span.context && joined.back().end == span.begin;
    if (follows && joined.back().size() + span.size() <= kBatchTokens) {
      joined.back().end = span.end;
    } else {
      joined.push_back(span);
    }
  }
  return joined;
}

Dense<float> SharesOf(const GroupChannels& group, const Dense<double>& vectors) {
  Dense<float> shares(group.planes.size(), vectors.rows);
  for (size_t p = 0; p < group.planes.size(); ++p) {
    const size_t begin = group.first_channels[p];
    const size_t end = p + 1 < group.planes.size() ? group.first_channels[p + 1] : group.count;
    for (size_t row = 0; row < vectors.rows; ++row) {
      double sum = 0;
      for (double component : vectors.row(row).subspan(begin, end - begin)) {
        sum += component * component;
      }
      shares.row(p)[row] = static_cast<float>(sum / static_cast<double>(end - begin));
    }
  }
  return shares;
}

}  // namespace

absl::StatusOr<Dense<double>> MeasureCovariance(ChannelReader& reader, const GroupChannels& group,
                                                std::span<const TokenSpan> spans,
                                                const Normalisation& normalisation) {
  OuterProductSum sum(group.count);
  Dense<float> y;
  uint64_t num_tokens = 0;
  for (const TokenSpan& span : Join(spans)) {
    RETURN_IF_ERROR(ReadNormalised(reader, group, span, normalisation.sink_tokens,
                                   normalisation.means, normalisation.steps, y));
    sum.Add(y);
    num_tokens += span.size() - span.num_sinks(normalisation.sink_tokens);
  }
  return sum.Take(num_tokens == 0 ? 0 : 1 / static_cast<double>(num_tokens));
}

void ApplyWeights(const QueryWeights& weights, const GroupChannels& group,
                  Dense<double>& covariance) {
  ForEachWeight(weights, group, [&](const HeadWeight& weight, size_t channel) {
    MultiplyRows(weight.root, channel, covariance);
    MultiplyColumns(weight.root, channel, covariance);
  });
}

absl::StatusOr<GroupBasis> MakeBasis(const QueryWeights& weights, const GroupChannels& group,
                                     Dense<double> covariance) {
  GroupBasis result;
  Dense<double> vectors = std::move(covariance);
  ASSIGN_OR_RETURN(result.variances, Diagonalise(vectors));
  for (double& variance : result.variances) variance = std::max(variance, 0.0);
  result.plane_shares = SharesOf(group, vectors);
  ForEachWeight(weights, group, [&](const HeadWeight& weight, size_t channel) {
    MultiplyColumns(weight.inverse_root, channel, vectors);
  });
  result.basis.resize(vectors.values.size());
  std::ranges::transform(vectors.values, result.basis.begin(),
                         [](double value) { return FloatToBf16(static_cast<float>(value)); });
  return result;
}

Dense<float> MakeAnalysis(const QueryWeights& weights, const GroupChannels& group,
                          std::span<const uint16_t> basis) {
  // basis = E W^-1 with E orthogonal, so its transposed inverse is E W = basis W W.
  Dense<float> analysis(group.count, group.count);
  std::ranges::transform(basis, analysis.values.begin(), Bf16ToFloat);
  ForEachWeight(weights, group, [&](const HeadWeight& weight, size_t channel) {
    MultiplyColumns(weight.moment, channel, analysis);
  });
  return analysis;
}

}  // namespace sluice::codec
