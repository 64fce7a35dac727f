#include "codec/class_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "codec/row_coding.h"

namespace sluice::codec {
namespace {

// Bits for sending a class by its distance from the prediction, about: measured on real caches.
const std::array<float, 256>& DistancePrices() {
  static const std::array<float, 256>* const prices = [] {
    auto* made = new std::array<float, 256>;
    for (size_t d = 0; d < made->size(); ++d) {
      (*made)[d] = static_cast<float>(1.5 * std::min(std::log2(1.0 + static_cast<double>(d)), 6.0));
    }
    return made;
  }();
  return *prices;
}

// `counts` are of symbols, bits[symbol][class - 1] their prices.
uint8_t CheapestClass(std::span<const uint32_t> counts, const std::vector<std::vector<float>>& bits,
                      int predicted) {
  const std::array<float, 256>& distance_prices = DistancePrices();
  std::array<float, 256> prices;
  const size_t num_classes = bits[0].size();
  for (size_t c = 0; c < num_classes; ++c) {
    prices[c] = distance_prices[std::abs(static_cast<int>(c) + 1 - predicted)];
  }
  for (size_t symbol = 0; symbol < counts.size(); ++symbol) {
    if (counts[symbol] == 0) continue;
    const auto count = static_cast<float>(counts[symbol]);
    const float* symbol_bits = bits[symbol].data();
    for (size_t c = 0; c < num_classes; ++c) prices[c] += count * symbol_bits[c];
  }
  const auto best = std::min_element(prices.begin(), prices.begin() + num_classes);
  return static_cast<uint8_t>(best - prices.begin() + 1);
}

}  // namespace

void ChooseBaseClasses(const ClassTables& tables, size_t num_tokens,
                       std::span<const int16_t> values, std::span<const uint8_t> predictions,
                       std::span<uint8_t> classes) {
  for (size_t row = 0; row < classes.size(); ++row) {
    std::array<uint32_t, kBaseSymbols> counts = {};
    for (int16_t value : values.subspan(row * num_tokens, num_tokens)) {
      const bool escaped = std::abs(value) > kBaseZero;
      ++counts[escaped ? kEscapeSymbol : value + kBaseZero];
    }
    const int before = row == 0 ? 0 : classes[row - 1];
    const int predicted = predictions.empty() ? before : predictions[row];
    const bool zero = counts[kBaseZero] == num_tokens;
    classes[row] = zero ? 0 : CheapestClass(counts, tables.base_bits, predicted);
  }
}

void ChooseRefinementClasses(const ClassTables& tables, size_t num_tokens,
                             std::span<const int16_t> values, std::span<const uint8_t> predictions,
                             std::span<uint8_t> classes) {
  for (size_t row = 0; row < classes.size(); ++row) {
    std::array<uint32_t, kContexts* kRefinementSymbols> counts = {};
    uint32_t nonzero = 0;
    for (int16_t value : values.subspan(row * num_tokens, num_tokens)) {
      const int parent = ParentOf(value);
      const int refinement = value - 3 * parent;
      const int context = std::clamp(parent, -kContextLimit, kContextLimit) + kContextLimit;
      ++counts[context * kRefinementSymbols + refinement + 1];
      nonzero += refinement != 0;
    }
    classes[row] =
        nonzero == 0 ? 0 : CheapestClass(counts, tables.refinement_bits, predictions[row]);
  }
}

}  // namespace sluice::codec
