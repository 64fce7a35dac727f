#include "codec/class_tables.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::codec {
namespace {

#include "codec/builtin_tables.inc"

float PriceOf(uint16_t frequency) {
  return static_cast<float>(kProbBits - std::log2(static_cast<double>(frequency)));
}

// Intervals of slots, one after the other.
template <size_t kSymbols>
std::array<TableSymbol, kSymbols> Intervals(const std::array<uint16_t, kSymbols>& frequencies) {
  std::array<TableSymbol, kSymbols> symbols;
  uint16_t start = 0;
  for (size_t s = 0; s < kSymbols; ++s) {
    symbols[s] = {start, frequencies[s]};
    start += frequencies[s];
  }
  return symbols;
}

template <size_t kSymbols>
std::array<uint16_t, kSymbols> FrequenciesOf(const std::array<TableSymbol, kSymbols>& symbols) {
  std::array<uint16_t, kSymbols> frequencies;
  for (size_t s = 0; s < kSymbols; ++s) frequencies[s] = symbols[s].frequency;
  return frequencies;
}

}  // namespace

BaseFrequencies BaseTable::Frequencies() const { return FrequenciesOf(symbols); }

RefinementFrequencies RefinementTable::Frequencies() const {
  RefinementFrequencies frequencies;
  for (int c = 0; c < kContexts; ++c) frequencies[c] = FrequenciesOf(symbols[c]);
  return frequencies;
}

uint8_t ClassTables::PredictRefinementClass(uint8_t parent) const {
  if (parent == 0) return static_cast<uint8_t>(wake);
  return static_cast<uint8_t>(std::min<size_t>(parent + growth, refinement.size()));
}

CentroidShift ClassTables::ShiftOf(int layer, uint8_t row_class) const {
  return layer > 0 || row_class == 0 ? CentroidShift() : base[row_class - 1].shift;
}

bool AreValid(std::span<const uint16_t> frequencies) {
  uint32_t sum = 0;
  for (uint16_t frequency : frequencies) {
    if (frequency == 0) return false;
    sum += frequency;
  }
  return sum == kProbScale;
}

ClassTables MakeBaseTables(std::span<const BaseFrequencies> classes,
                           std::span<const CentroidShift> shifts) {
  ClassTables tables;
  tables.base_bits.resize(kBaseSymbols);
  for (size_t c = 0; c < classes.size(); ++c) {
    BaseTable& table = tables.base.emplace_back();
    table.symbols = Intervals(classes[c]);
    table.shift = shifts[c];
    for (int s = 0; s < kBaseSymbols; ++s) {
      const TableSymbol symbol = table.symbols[s];
      std::fill_n(table.symbol_of_slot.begin() + symbol.start, symbol.frequency,
                  static_cast<uint8_t>(s));
      tables.base_bits[s].push_back(PriceOf(symbol.frequency));
    }
  }
  return tables;
}

ClassTables MakeRefinementTables(std::span<const RefinementFrequencies> classes) {
  ClassTables tables;
  tables.refinement_bits.resize(kContexts * kRefinementSymbols);
  for (const RefinementFrequencies& frequencies : classes) {
    RefinementTable& table = tables.refinement.emplace_back();
    for (int c = 0; c < kContexts; ++c) {
      table.symbols[c] = Intervals(frequencies[c]);
      for (int s = 0; s < kRefinementSymbols; ++s) {
        tables.refinement_bits[c * kRefinementSymbols + s].push_back(PriceOf(frequencies[c][s]));
      }
    }
  }
  return tables;
}

const ClassTables& BuiltinTables() {
  static const ClassTables* const tables = [] {
    std::vector<BaseFrequencies> base_classes;
    for (const auto& frequencies : kBaseFrequencies) {
      base_classes.push_back(std::to_array(frequencies));
    }
    std::vector<CentroidShift> shifts;
    for (const auto& shift : kBaseShifts) shifts.push_back({shift[0], shift[1]});
    std::vector<RefinementFrequencies> refinement_classes(std::size(kRefinementFrequencies));
    for (size_t c = 0; c < refinement_classes.size(); ++c) {
      for (int context = 0; context < kContexts; ++context) {
        refinement_classes[c][context] = std::to_array(kRefinementFrequencies[c][context]);
      }
    }
    auto* made = new ClassTables(MakeBaseTables(base_classes, shifts));
    ClassTables refinement = MakeRefinementTables(refinement_classes);
    made->refinement = std::move(refinement.refinement);
    made->refinement_bits = std::move(refinement.refinement_bits);
    made->growth = kClassGrowth;
    made->wake = kClassWake;
    return made;
  }();
  return *tables;
}

}  // namespace sluice::codec
