#include "codec/class_tables.h"

#include <algorithm>
#include <cmath>

namespace sluice::codec {
namespace {

#include "codec/builtin_tables.inc"

float PriceOf(uint16_t frequency) {
  return static_cast<float>(kProbBits - std::log2(static_cast<double>(frequency)));
}

BaseTable MakeBaseTable(const uint16_t (&frequencies)[kBaseSymbols], const uint8_t (&shift)[2]) {
  BaseTable table;
  uint16_t start = 0;
  for (int s = 0; s < kBaseSymbols; ++s) {
    table.symbols[s] = {start, frequencies[s]};
    std::fill_n(table.symbol_of_slot.begin() + start, frequencies[s], static_cast<uint8_t>(s));
    start += frequencies[s];
  }
  table.shift = {shift[0], shift[1]};
  return table;
}

RefinementTable MakeRefinementTable(const uint16_t (&frequencies)[kContexts][kRefinementSymbols]) {
  RefinementTable table;
  for (int c = 0; c < kContexts; ++c) {
    uint16_t start = 0;
    for (int s = 0; s < kRefinementSymbols; ++s) {
      table.symbols[c][s] = {start, frequencies[c][s]};
      start += frequencies[c][s];
    }
  }
  return table;
}

}  // namespace

uint8_t ClassTables::PredictRefinementClass(uint8_t parent) const {
  if (parent == 0) return static_cast<uint8_t>(wake);
  return static_cast<uint8_t>(std::min<size_t>(parent + growth, refinement.size()));
}

CentroidShift ClassTables::ShiftOf(int layer, uint8_t row_class) const {
  return layer > 0 || row_class == 0 ? CentroidShift() : base[row_class - 1].shift;
}

const ClassTables& BuiltinTables() {
  static const ClassTables* const tables = [] {
    auto* made = new ClassTables;
    for (int c = 0; c < kBaseClasses; ++c) {
      made->base.push_back(MakeBaseTable(kBaseFrequencies[c], kBaseShifts[c]));
    }
    for (int c = 0; c < kRefinementClasses; ++c) {
      made->refinement.push_back(MakeRefinementTable(kRefinementFrequencies[c]));
    }
    for (int s = 0; s < kBaseSymbols; ++s) {
      std::vector<float>& bits = made->base_bits.emplace_back();
      for (const BaseTable& table : made->base) bits.push_back(PriceOf(table.symbols[s].frequency));
    }
    for (int s = 0; s < kContexts * kRefinementSymbols; ++s) {
      std::vector<float>& bits = made->refinement_bits.emplace_back();
      for (const RefinementTable& table : made->refinement) {
        const auto& context = table.symbols[s / kRefinementSymbols];
        bits.push_back(PriceOf(context[s % kRefinementSymbols].frequency));
      }
    }
    made->growth = kClassGrowth;
    made->wake = kClassWake;
    return made;
  }();
  return *tables;
}

}  // namespace sluice::codec
