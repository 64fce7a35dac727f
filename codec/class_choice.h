// The encoder's choice of a class for each row: the one that costs the fewest bits, its own
// transmission included.
//
// Pure functions, thread-safe. `values` are [classes.size()][num_tokens], `predictions` the class
// that each row is expected to have; they may be wrong, which costs bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/class_tables.h"

namespace sluice::codec {

// For base values. Without predictions, each row is expected to have the class of the row before.
void ChooseBaseClasses(const ClassTables& tables, size_t num_tokens,
                       std::span<const int16_t> values, std::span<const uint8_t> predictions,
                       std::span<uint8_t> classes);

// For values of a finer level.
void ChooseRefinementClasses(const ClassTables& tables, size_t num_tokens,
                             std::span<const int16_t> values, std::span<const uint8_t> predictions,
                             std::span<uint8_t> classes);

}  // namespace sluice::codec
