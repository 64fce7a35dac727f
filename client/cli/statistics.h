// Small statistics.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice::cli {

// Nearest rank; `percent` in [0, 100]. 0 if there are no values.
inline double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace sluice::cli
