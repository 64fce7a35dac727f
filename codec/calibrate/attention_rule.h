// What errors cost where no model has measured it: a rule that needs nothing but the contexts.
//
// Pure functions, thread-safe.
#pragma once

#include <span>
#include <vector>

#include "codec/calibrate/contexts.h"
#include "codec/calibrate/plane_statistics.h"

namespace sluice::codec {

// Second moments of queries guessed from the keys, for planes of keys, in the form of
// CalibrateOptions::queries: diagonal, in each pair of dimensions that turns together the mean
// square of the keys, their means included. A model that makes keys large in a pair makes queries
// large there too: in SmolLM2-135M the logarithms of both correlate by 0.9 in nearly all layers.
std::vector<std::vector<float>> GuessQueries(const Contexts& contexts,
                                             std::span<const PlaneStatistics> statistics);

// Guessed sensitivities, [plane][head]: nats for each unit of variance that is added to the values
// of all heads if all were like this one. `queries` are measured or guessed.
//
// A head whose attention scores vary much looks at few tokens, so that an error in one of them is
// hardly averaged out. And what values of early model layers put in passes through all that follow.
std::vector<std::vector<double>> GuessSensitivities(const Contexts& contexts,
                                                    std::span<const PlaneStatistics> statistics,
                                                    std::span<const std::vector<float>> queries);

}  // namespace sluice::codec
