// What an error costs, by head and direction.
//
// An error e of a key changes an attention score by q.e, so its mean square is e' M e with M the
// mean of q q'. Coding W y instead of y, W the square root of M, spreads the cost evenly over all
// coefficients. Heads of one plane that cost more than others have a larger M; of planes that are
// not keys it is a multiple of the identity.
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

// `moments` are [plane]: empty, or [num_heads][head_dim][head_dim] of the queries, un-rotated.
// Fails, naming the plane, if they are of another size, of a head all zero, or no second moments:
// over 10^30, negative on the diagonal, larger off it than Cauchy and Schwarz admit.
absl::Status CheckQueries(const Contexts& contexts, std::span<const std::vector<float>> moments);

// `costs` are [plane][head], empty for planes without weights; only how heads of a plane compare
// counts. The mean of all weights of a plane is 1. To the queries' moments a share of the identity
// is added: no direction is worth nothing. REQUIRES: moments as CheckQueries wants them, one of
// each plane.
absl::StatusOr<QueryWeights> MakeQueryWeights(const Contexts& contexts,
                                              std::span<const std::vector<float>> moments,
                                              std::span<const std::vector<double>> costs);

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
