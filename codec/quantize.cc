#include "codec/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace sluice::codec {
namespace {

// Adding this rounds a float below 2^22 to an integer, ties to even, which is then in the low bits.
constexpr float kRounder = 0x1.8p23f;
constexpr float kLargestQuotient = 0x1p22f;

}  // namespace

Spread MeasureSpread(std::span<const float> rows, size_t num_tokens, size_t skip,
                     std::span<double> means) {
  Spread spread;
  double sum_of_squares = 0;
  float largest = 0;
  for (size_t r = 0; r < means.size(); ++r) {
    const std::span<const float> row = rows.subspan(r * num_tokens, num_tokens);
    uint32_t bits = 0;  // of the largest magnitude; NaN and Inf are above all others
    for (float x : row) bits = std::max(bits, std::bit_cast<uint32_t>(x) & 0x7fffffff);
    if (bits >= 0x7f800000) return {.finite = false};
    largest = std::max(largest, std::bit_cast<float>(bits));
    const std::span<const float> body = row.subspan(std::min(skip, num_tokens));
    double sum = 0;
    for (float x : body) sum += x;
    means[r] = body.empty() ? 0 : sum / static_cast<double>(body.size());
    double squares = 0;
    for (float x : body) squares += (x - means[r]) * (x - means[r]);
    sum_of_squares += squares;
  }
  const size_t counted = num_tokens > skip ? (num_tokens - skip) * means.size() : 0;
  spread.rms = counted == 0 ? 0 : std::sqrt(sum_of_squares / static_cast<double>(counted));
  spread.largest = largest;
  return spread;
}

bool QuantizeRow(std::span<const float> row, size_t skip, double mean, float step,
                 int32_t& mean_parts, std::span<int16_t> values) {
  const double rounded_mean = std::nearbyint(mean / step * kMeanParts);
  if (!(std::abs(rounded_mean) <= kMaxMean)) return false;
  mean_parts = static_cast<int32_t>(rounded_mean);
  const float coded_mean = static_cast<float>(mean_parts) / kMeanParts;  // exact
  skip = std::min(skip, row.size());
  std::fill_n(values.begin(), skip, int16_t{0});
  bool fits = true;
  // Unsigned: a quotient that is too large may wrap, and is found out.
  const uint32_t origin = std::bit_cast<uint32_t>(kRounder) - kMaxValue;
  for (size_t t = skip; t < row.size(); ++t) {
    const float quotient = row[t] / step - coded_mean;
    const uint32_t value = std::bit_cast<uint32_t>(quotient + kRounder) - origin;
    fits &= (std::abs(quotient) < kLargestQuotient) & (value <= 2 * kMaxValue);
    values[t] = static_cast<int16_t>(value - kMaxValue);
  }
  return fits;
}

void DequantizeRow(std::span<const int16_t> values, CentroidShift shift, int ratio,
                   int32_t mean_parts, float step, std::span<float> out) {
  const float scale = static_cast<float>(ratio) / 256;  // exact
  const float mean = static_cast<float>(mean_parts) / kMeanParts;  // exact
  const int32_t one = shift.one;
  const int32_t more = shift.more;
  for (size_t t = 0; t < values.size(); ++t) {
    const int32_t value = values[t];
    const int32_t sign = (value > 0) - (value < 0);
    const int32_t inward = value == sign ? one : more;
    out[t] = (static_cast<float>(value * 256 - sign * inward) * scale + mean) * step;
  }
}

}  // namespace sluice::codec
