// A rate that changes over time and repeats: the bytes per second that a link carries, or the share
// of a GPU that a load gets.
//
// Steps of equal length, each with one rate. Immutable; threads may share it. Times in microseconds
// from 0.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "adapt/load_types.h"

namespace sluice::sim {

using adapt::TimeUs;

// Later than anything; sums of a few do not overflow.
inline constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max() / 8;

class RateTrace {
 public:
  // Rates are per second; what is negative or no number counts as 0. Without any it is always 0.
  RateTrace(std::vector<double> rates, TimeUs step_us);

  double RateAt(TimeUs at_us) const;
  // What passes in [from_us, to_us).
  double Amount(TimeUs from_us, TimeUs to_us) const;
  // Earliest time at which `amount` has passed since `from_us`; kNever if it never does.
  TimeUs TimeOf(double amount, TimeUs from_us) const;

  double mean() const;
  TimeUs step_us() const { return steps_->step_us; }
  TimeUs period_us() const { return steps_->period_us; }
  // The same shape, times `factor`; with steps of another length.
  RateTrace Scaled(double factor) const;
  RateTrace WithStep(TimeUs step_us) const;
  // What this is at `at_us` the result is at 0. Shares the memory.
  RateTrace From(TimeUs at_us) const;

 private:
  struct Steps {
    std::vector<double> rates;
    std::vector<double> passed;  // in a period, before each step and after the last
    TimeUs step_us = 1;
    TimeUs period_us = 1;
  };

  double Passed(TimeUs until_us) const;  // since the start of the period in which 0 is

  std::shared_ptr<const Steps> steps_;
  TimeUs start_us_ = 0;  // in the period
};

RateTrace ConstantRate(double rate);
// A new uniform draw from [low, high) each step.
RateTrace UniformRate(std::mt19937_64& random, double low, double high, TimeUs step_us, size_t n);
// Full rate for a while, then `low_share` of it for a while; times drawn from the ranges.
struct OnOff {
  double rate = 0;
  double low_share = 0;
  TimeUs min_on_us = 0, max_on_us = 0;
  TimeUs min_off_us = 0, max_off_us = 0;
};
RateTrace OnOffRate(std::mt19937_64& random, const OnOff& shape, TimeUs length_us);
// Each step keeps the rate with probability `keep`, or draws one of the choices.
RateTrace ChoiceRate(std::mt19937_64& random, const std::vector<double>& choices, double keep,
                     TimeUs step_us, size_t n);

}  // namespace sluice::sim
