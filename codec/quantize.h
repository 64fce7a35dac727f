// The quantiser: rows of floats to nested integers and back.
//
// A plane's finest step is coded with the chunk; the step of level l is 3^(levels - 1 - l) times as
// large. A value's bin at a level is the integer nearest to (value - mean) / step, and the bins of
// a level are thirds of those of the level before. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/class_tables.h"

namespace sluice::codec {

// A mean is coded in this part of a finest step. The error of a coarser mean is that of all tokens
// of a row alike: attention, which averages over tokens, would not reduce it.
inline constexpr int32_t kMeanParts = 8;
// Limits of the integers, at the finest level: larger planes are kept exact.
inline constexpr int32_t kMaxMean = 1 << 24;  // in parts: exact in a float
inline constexpr int32_t kMaxValue =
    31000;  // of 8 levels, any base value's refinements fit 16 bits
// Largest error of the float steps, as a part of the values' size.
inline constexpr double kFloatSlack = 0x1p-20;

// A plane's spread: what its steps are relative to.
struct Spread {
  bool finite = true;  // no NaN, no Inf
  double rms = 0;      // about the means of the rows
  double largest = 0;  // absolute value
};

// Means of the rows of `rows`, [means.size()][num_tokens], and their spread; the first `skip`
// tokens do not count, except for `finite` and `largest`.
Spread MeasureSpread(std::span<const float> rows, size_t num_tokens, size_t skip,
                     std::span<double> means);

// Quantises a row at the finest level: the mean in parts of a step, and values about it; the first
// `skip` are zero. False if an integer would pass its limit.
bool QuantizeRow(std::span<const float> row, size_t skip, double mean, float step,
                 int32_t& mean_parts, std::span<int16_t> values);

// The values that `values`, bins at a level whose step is `ratio` finest steps, stand for:
// centroids by `shift`. |out - value| <= (ratio / 2 + largest shift) * step, but for kFloatSlack.
void DequantizeRow(std::span<const int16_t> values, CentroidShift shift, int ratio,
                   int32_t mean_parts, float step, std::span<float> out);

}  // namespace sluice::codec
