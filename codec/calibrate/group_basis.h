// The transform of a group: eigenvectors of the covariance of its channels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/calibrate/channel_reader.h"
#include "codec/calibrate/contexts.h"
#include "codec/calibrate/linear_algebra.h"
#include "codec/calibrate/query_weight.h"

namespace sluice::codec {

// What the channels of groups are made of. Everything belongs to someone else.
struct Normalisation {
  uint32_t sink_tokens = 0;
  std::span<const std::vector<double>> means;  // [plane][channel]
  std::span<const double> steps;               // [plane]
  const QueryWeights* weights = nullptr;
};

struct GroupBasis {
  std::vector<uint16_t> basis;    // [row][channel], bf16 bits, as in GroupCalibration
  std::vector<double> variances;  // [row], falling; none is negative
  // [plane of the group][row]: the share of a row's square error that the plane's channels get, on
  // average over them, errors of keys weighted by queries.
  Dense<float> plane_shares;
};

// Covariance of the normalised channels, in several spans of at most a batch.
absl::StatusOr<Dense<double>> MeasureCovariance(ChannelReader& reader, const GroupChannels& group,
                                                std::span<const TokenSpan> spans,
                                                const Normalisation& normalisation);

// `covariance` of channels becomes that of weighted channels, W C W.
void ApplyWeights(const QueryWeights& weights, const GroupChannels& group,
                  Dense<double>& covariance);

// From the covariance of weighted channels.
absl::StatusOr<GroupBasis> MakeBasis(const QueryWeights& weights, const GroupChannels& group,
                                     Dense<double> covariance);

// The matrix that makes coefficients of normalised channels, [row][channel]: the inverse of the
// transposed basis, up to the rounding of its elements.
Dense<float> MakeAnalysis(const QueryWeights& weights, const GroupChannels& group,
                          std::span<const uint16_t> basis);

}  // namespace sluice::codec
