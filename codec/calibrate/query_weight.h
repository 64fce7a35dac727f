// What an error in a key costs: the second moment of the queries that it meets.
//
// An error e of a key changes an attention score by q.e, so its mean square is e' M e with M the
// mean of q q'. Coding W y instead of y, W the square root of M, spreads the cost evenly over all
// coefficients.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/calibrate/channel_reader.h"
#include "codec/calibrate/linear_algebra.h"

namespace sluice::codec {

// Of one head of a plane, [head_dim][head_dim] each. Symmetric.
struct HeadWeight {
  Dense<double> moment;  // M
  Dense<double> root;    // W
  Dense<double> inverse_root;
};

// [plane][head]; no heads where errors count alike in all directions.
using QueryWeights = std::vector<std::vector<HeadWeight>>;

// `moments` are [plane]: empty, or [num_heads][head_dim][head_dim] of the queries, un-rotated. Each
// plane's are scaled so that the mean over its channels is 1, and a tenth of the identity is added:
// no direction is worth nothing. Fails, naming the plane, if they are of another size, not finite
// or all zero.
absl::StatusOr<QueryWeights> MakeQueryWeights(const Contexts& contexts,
                                              std::span<const std::vector<float>> moments);

// Calls visit(weight, first channel) for each weighted head of a group.
template <typename Visit>
void ForEachWeight(const QueryWeights& weights, const GroupChannels& group, Visit visit) {
  for (size_t i = 0; i < group.planes.size(); ++i) {
    size_t channel = group.first_channels[i];
    for (const HeadWeight& weight : weights[group.planes[i]]) {
      visit(weight, channel);
      channel += weight.root.rows;
    }
  }
}

}  // namespace sluice::codec
