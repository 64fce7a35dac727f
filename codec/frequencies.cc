#include "codec/frequencies.h"

#include <algorithm>
#include <numeric>

#include "codec/rans.h"

namespace sluice::codec {
namespace {

// Bits saved by one slot more for a symbol of this count and frequency, up to a constant factor:
// the derivative of count * log2(freq) in the middle of the step.
double Gain(uint64_t count, uint32_t freq) {
  return static_cast<double>(count) / (2.0 * freq + 1.0);
}

}  // namespace

std::vector<uint16_t> ScaleToFrequencies(std::span<const uint64_t> counts) {
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  std::vector<uint16_t> freqs(counts.size(), 0);
  uint32_t sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const uint64_t rounded = (counts[i] * kProbScale + total / 2) / total;
    freqs[i] = static_cast<uint16_t>(std::max<uint64_t>(1, rounded));
    sum += freqs[i];
  }
  // Rounding leaves the sum a few slots off: give or take them one at a time where it saves most
  // bits or costs least; the first symbol wins between equals.
  for (; sum < kProbScale; ++sum) {
    size_t best = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (Gain(counts[i], freqs[i]) > Gain(counts[best], freqs[best])) best = i;
    }
    ++freqs[best];
  }
  for (; sum > kProbScale; --sum) {
    size_t best = counts.size();
    for (size_t i = 0; i < counts.size(); ++i) {
      if (freqs[i] < 2) continue;
      if (best == counts.size() ||
          Gain(counts[i], freqs[i] - 1) < Gain(counts[best], freqs[best] - 1)) {
        best = i;
      }
    }
    --freqs[best];
  }
  return freqs;
}

}  // namespace sluice::codec
