// How far a level's planes are from the originals.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/geometry.h"
#include "codec/token_planes.h"

namespace sluice::codec {

// What is known of an original plane.
struct PlaneMeasure {
  double deviation = 0;  // standard, about its channels' means
  double largest = 0;    // absolute value
};

class ErrorReport {
 public:
  // Counts a plane that is kept exact.
  void AddExact(size_t elements) { elements_ += elements; }

  // Counts a lossy plane. `deviation` is its standard deviation, `bound` the largest error that the
  // level admits. False if there is a larger one. REQUIRES: all elements of `original` are finite.
  bool Add(const PlaneSpec& spec, std::span<const std::byte> original,
           std::span<const std::byte> decoded, double deviation, double bound);

  // The same, already compared.
  bool Add(size_t elements, const ErrorSums& sums, double deviation, double bound);

  double mean_error() const { return Mean(sum_); }
  double max_error() const { return max_; }
  double error_bound() const { return bound_; }
  // The same in standard deviations of each plane.
  double mean_relative_error() const { return Mean(relative_sum_); }
  double max_relative_error() const { return relative_max_; }

 private:
  double Mean(double sum) const {
    return elements_ == 0 ? 0 : sum / static_cast<double>(elements_);
  }

  uint64_t elements_ = 0;
  double sum_ = 0;
  double max_ = 0;
  double bound_ = 0;
  double relative_sum_ = 0;
  double relative_max_ = 0;
};

}  // namespace sluice::codec
