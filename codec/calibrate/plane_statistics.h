// Means and spread of every plane over the tokens that are learnt from.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/calibrate/contexts.h"

namespace sluice::codec {

struct PlaneStatistics {
  std::vector<double> means;      // [channel], keys turned back to position 0
  std::vector<double> variances;  // [channel], about the means
  double rms = 0;                 // about the means, over all channels
  // The plane's values do not differ by more than its element type rounds them.
  bool constant = false;
};

// Of each plane; of those that cannot be quantised nothing. Reads the held-out tokens as well, so
// that NaN and the like are found before the work begins. `done` is called with the planes read.
absl::StatusOr<std::vector<PlaneStatistics>> MeasurePlanes(const Contexts& contexts,
                                                           const TokenSplit& split,
                                                           uint32_t sink_tokens,
                                                           const std::function<void(size_t)>& done);

}  // namespace sluice::codec
