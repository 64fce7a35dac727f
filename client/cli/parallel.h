// Runs independent pieces of work on a few threads.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"

namespace sluice::cli {

inline constexpr size_t kMaxThreads = 16;

// Calls work(i) for i in [0, count), on up to min(kMaxThreads, cores) threads, in order of start.
// After the first error no further piece is started, and the error of the lowest i is returned.
// `done` is called from the calling thread with the number of pieces that have ended.
absl::Status ParallelFor(size_t count, const std::function<absl::Status(size_t)>& work,
                         const std::function<void(size_t)>& done = nullptr);

}  // namespace sluice::cli
