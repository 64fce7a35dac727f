// Symbol alphabets of lossy rows, and the tables that a row's class picks.
//
// Class 0 means that all symbols of the row are zero and nothing is coded; class c > 0 uses table
// c - 1. Tables are integers that are committed or come with a profile, never computed from floats
// at run time. Immutable, thread-safe. FORMAT.md, section "Lossy segments".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "codec/rans.h"

namespace sluice::codec {

// Base symbols: value + kBaseZero for -7 .. 7, then the escape.
inline constexpr int kBaseSymbols = 16;
inline constexpr int kBaseZero = 7;
inline constexpr int kEscapeSymbol = 15;
// Refinement symbols: r + 1 for r in -1 .. 1, given the parent clipped to -3 .. 3.
inline constexpr int kRefinementSymbols = 3;
inline constexpr int kContextLimit = 3;
inline constexpr int kContexts = 2 * kContextLimit + 1;
// Classes of one layer, class 0 not counted.
inline constexpr size_t kMaxClasses = 64;

// How far the centroid of a bin lies from its middle towards zero, in 1/256 of the level's step.
struct CentroidShift {
  uint8_t one = 0;   // |value| = 1
  uint8_t more = 0;  // |value| >= 2; 0 needs none
};

// A symbol's interval of slots.
struct TableSymbol {
  uint16_t start = 0;
  uint16_t frequency = 0;
};

// Frequencies of a class: of each symbol, of each symbol in each context. They sum to kProbScale,
// and none is 0.
using BaseFrequencies = std::array<uint16_t, kBaseSymbols>;
using RefinementFrequencies = std::array<std::array<uint16_t, kRefinementSymbols>, kContexts>;

struct BaseTable {
  BaseFrequencies Frequencies() const;

  std::array<TableSymbol, kBaseSymbols> symbols;
  std::array<uint8_t, kProbScale> symbol_of_slot;
  CentroidShift shift;
};

struct RefinementTable {
  RefinementFrequencies Frequencies() const;

  std::array<std::array<TableSymbol, kRefinementSymbols>, kContexts> symbols;
};

struct ClassTables {
  std::vector<BaseTable> base;
  std::vector<RefinementTable> refinement;
  // What a symbol costs in each class, in bits: [symbol][class - 1], and
  // [context * kRefinementSymbols + symbol][class - 1]. For the encoder's choice of classes only.
  std::vector<std::vector<float>> base_bits;
  std::vector<std::vector<float>> refinement_bits;
  // A row of class c > 0 in a layer is expected to have class c + growth in the next one, whose
  // steps are a third; a row of class 0 class `wake`.
  int growth = 0;
  int wake = 0;

  // Number of classes of a layer, class 0 not counted.
  size_t num_classes(bool base_layer) const { return base_layer ? base.size() : refinement.size(); }
  // The class that a row is expected to have in the layer after one where it has class `parent`.
  uint8_t PredictRefinementClass(uint8_t parent) const;
  // The shift of a row's values at the level that the layer completes. Only level 0 has any: finer
  // bins are so narrow that a shift, which attention cannot average out as it does rounding, costs
  // more divergence than its smaller squared error saves.
  CentroidShift ShiftOf(int layer, uint8_t row_class) const;
};

// REQUIRES (here and below): at most kMaxClasses, each valid; as many shifts.
ClassTables MakeBaseTables(std::span<const BaseFrequencies> classes,
                           std::span<const CentroidShift> shifts);
ClassTables MakeRefinementTables(std::span<const RefinementFrequencies> classes);

// Do they sum to kProbScale, and is none 0?
bool AreValid(std::span<const uint16_t> frequencies);

// Those of the built-in profile: base tables, and refinement tables for all layers.
const ClassTables& BuiltinTables();

}  // namespace sluice::codec
