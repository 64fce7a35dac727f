// What calibration learnt about a model: the transform of each group, its symbol tables, and how
// well each level did.
//
// Plain values. A calibrated profile carries one; FORMAT.md, section "Calibrated profiles".
//
// With y = (value - mean) / step for every channel of a group, keys un-rotated, and c the group's
// coefficients, y[channel] = sum over rows of c[row] * basis[row][channel]. Rows fall in variance.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "codec/class_tables.h"

namespace sluice::codec {

// Coefficients of a group, and channels of its coded planes.
inline constexpr size_t kMaxTransformChannels = 1 << 14;
// Largest magnitude of a basis element, a mean and a step: products stay far from overflow.
inline constexpr float kMaxBasisElement = 0x1p10f;
inline constexpr double kMaxCalibratedStep = 0x1p40;
inline constexpr float kMaxCalibratedMean = 0x1p60f;

// What a level cost and did on contexts that calibration had put aside.
struct LevelQuality {
  float bits_per_element = 0;
  float mean_error = 0;    // in standard deviations of each plane
  float max_error = 0;     // the largest, in the same unit
  float predicted_kl = 0;  // nats, by the sensitivity table; 0 if there was none
};

struct GroupCalibration {
  std::vector<float> means;                   // [channels], in the planes' own unit
  std::vector<std::vector<uint8_t>> classes;  // [layer][row]: the class that a row mostly has
  std::vector<uint16_t> basis;                // [row][channel], bf16 bits
};

struct Calibration {
  uint32_t num_contexts = 0;  // that it was learnt from
  uint64_t num_tokens = 0;
  std::vector<LevelQuality> levels;
  std::vector<ClassTables> tables;       // [layer]: base tables of layer 0, else refinement tables
  std::vector<GroupCalibration> groups;  // of the profile
};

// Names the first field that is out of range. `channels` are the coded channels of each group.
absl::Status ValidateCalibration(const Calibration& calibration, int num_levels,
                                 const std::vector<size_t>& channels);

}  // namespace sluice::codec
