#include "codec/class_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "codec/row_kernels.h"

namespace sluice::codec {
namespace {

constexpr int kMaxClass = 255;

// Bits for sending a class by its distance from the prediction, about: measured on real caches.
// Entry kMaxClass + d is of the distance d.
const std::array<float, 2 * kMaxClass + 2>& DistancePrices() {
  static const std::array<float, 2 * kMaxClass + 2>* const prices = [] {
    auto* made = new std::array<float, 2 * kMaxClass + 2>;
    for (size_t i = 0; i < made->size(); ++i) {
      const double distance = std::abs(static_cast<double>(i) - kMaxClass);
      (*made)[i] = static_cast<float>(1.5 * std::min(std::log2(1.0 + distance), 6.0));
    }
    return made;
  }();
  return *prices;
}

uint8_t CheapestClass(const RowKernels& kernels, std::span<const uint32_t> counts,
                      const PriceTable& prices, int predicted) {
  const float* distance_prices = DistancePrices().data() + kMaxClass + 1 - predicted;
  return static_cast<uint8_t>(kernels.cheapest_class(counts, prices, distance_prices) + 1);
}

}  // namespace

void ChooseBaseClasses(const ClassTables& tables, size_t num_tokens,
                       std::span<const int16_t> values, std::span<const uint8_t> predictions,
                       std::span<uint8_t> classes) {
  const RowKernels& kernels = BestRowKernels();
  const PriceTable prices(tables.base_bits);
  BaseCounts counts;
  for (size_t row = 0; row < classes.size(); ++row) {
    kernels.count_base(values.subspan(row * num_tokens, num_tokens), counts);
    const int before = row == 0 ? 0 : classes[row - 1];
    const int predicted = predictions.empty() ? before : predictions[row];
    const bool zero = counts[kBaseZero] == num_tokens;
    classes[row] = zero ? 0 : CheapestClass(kernels, counts, prices, predicted);
  }
}

void ChooseRefinementClasses(const ClassTables& tables, size_t num_tokens,
                             std::span<const int16_t> values, std::span<const uint8_t> predictions,
                             std::span<uint8_t> classes) {
  const RowKernels& kernels = BestRowKernels();
  const PriceTable prices(tables.refinement_bits);
  RefinementCounts counts;
  for (size_t row = 0; row < classes.size(); ++row) {
    kernels.count_refinement(values.subspan(row * num_tokens, num_tokens), counts);
    uint32_t zeros = 0;  // of all contexts
    for (size_t s = 1; s < counts.size(); s += kRefinementSymbols) zeros += counts[s];
    classes[row] =
        zeros == num_tokens ? 0 : CheapestClass(kernels, counts, prices, predictions[row]);
  }
}

}  // namespace sluice::codec
