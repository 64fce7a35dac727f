// Other loaders' rules, over the same links, engine and decoder.
//
// One load at a time. Levels are stored each by itself: a chunk is asked for at one level, once.
#pragma once

#include <memory>

#include "sim/simulator.h"

namespace sluice::sim {

// Every chunk at one level of the model.
std::unique_ptr<LoadDriver> FixedLevel(const LoadModel& model, size_t level);
// Before each chunk: the throughput of the one before is taken for all that remain; of all levels,
// and computing, the least lossy with which they end within the SLO. SIGCOMM 2024, section 5.3.
std::unique_ptr<LoadDriver> CacheGenPaper(const LoadModel& model);
// Every chunk has an equal part of the SLO; the largest of three levels that keeps it at the last
// throughput, or else it is computed. As in the program published with the paper, which is told the
// throughput that is to come.
std::unique_ptr<LoadDriver> CacheGenCode(const LoadModel& model);
// Like CacheGenPaper, with the estimate that ships: an average times a low quantile.
std::unique_ptr<LoadDriver> PessimisticMpc(const LoadModel& model);
// Uncompressed chunks from the back while the engine computes from the front, until they meet.
std::unique_ptr<LoadDriver> Cake(const LoadModel& model);

}  // namespace sluice::sim
