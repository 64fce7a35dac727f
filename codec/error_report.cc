#include "codec/error_report.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "codec/elements.h"

namespace sluice::codec {
namespace {

// Elements at a time: floats of both sides stay in the first cache, and sums of so few in float are
// exact enough for a report.
constexpr size_t kPiece = 1024;
constexpr size_t kSums = 8;  // independent, for the compiler to vectorise

}  // namespace

bool ErrorReport::Add(const PlaneSpec& spec, std::span<const std::byte> original,
                      std::span<const std::byte> decoded, double deviation, double bound) {
  const size_t element_bytes = ElementBytes(spec.element_type);
  const size_t count = original.size() / element_bytes;
  std::array<float, kPiece> before = {};
  std::array<float, kPiece> after = {};
  ErrorSums total;
  for (size_t begin = 0; begin < count; begin += kPiece) {
    const size_t size = std::min(kPiece, count - begin);
    const size_t offset = begin * element_bytes;
    ElementsToFloat(spec.element_type, original.subspan(offset, size * element_bytes),
                    std::span(before).first(size));
    ElementsToFloat(spec.element_type, decoded.subspan(offset, size * element_bytes),
                    std::span(after).first(size));
    std::fill(before.begin() + size, before.end(), 0.0f);
    std::fill(after.begin() + size, after.end(), 0.0f);
    std::array<float, kSums> sums = {};
    std::array<float, kSums> largests = {};
    for (size_t i = 0; i < kPiece; i += kSums) {
      for (size_t k = 0; k < kSums; ++k) {
        const float error = std::abs(after[i + k] - before[i + k]);
        sums[k] += error;
        largests[k] = std::max(largests[k], error);
      }
    }
    for (size_t k = 0; k < kSums; ++k) {
      total.sum += sums[k];
      total.largest = std::max(total.largest, largests[k]);
    }
  }
  return Add(count, total, deviation, bound);
}

bool ErrorReport::Add(size_t elements, const ErrorSums& sums, double deviation, double bound) {
  elements_ += elements;
  sum_ += sums.sum;
  max_ = std::max<double>(max_, sums.largest);
  bound_ = std::max(bound_, bound);
  relative_sum_ += sums.sum / deviation;
  relative_max_ = std::max(relative_max_, sums.largest / deviation);
  return sums.largest <= bound;
}

}  // namespace sluice::codec
