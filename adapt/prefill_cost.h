// How long the engine computes a run of tokens: learnt from what it reports of its own prefills.
//
// A prefill of n tokens after ctx others takes s (a + b n + c n (ctx + n / 2)): a start, work per
// token, and attention to what lies before. a, b and c are fitted to the least times seen for
// different shapes; s is the median of the latest measured over fitted times, so a GPU that is
// shared or slowed down is noticed at once and an outlier is not.
//
// One per model and engine. Pure; one thread at a time. Times in microseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "adapt/load_types.h"

namespace sluice::adapt {

class PrefillCost {
 public:
  static constexpr size_t kMaxShapes = 48;    // (n, ctx) classes remembered
  static constexpr size_t kMinSamples = 2;    // after the first, which warms up
  static constexpr size_t kMaxRatios = 256;   // latest, of which the high scale is a quantile
  static constexpr size_t kMedianRatios = 9;  // the last of them, of which s is the median
  static constexpr double kHighQuantile = 0.98;
  static constexpr size_t kTrustedRatios = 32;   // fewer say too little of busy times
  static constexpr double kUntrustedFactor = 4;  // by which it may then take longer
  static constexpr double kMaxScale = 1000;      // s is within [1 / kMaxScale, kMaxScale]

  // One shape of prefill, with the least time that it took.
  struct Shape {
    uint32_t new_tokens = 0;
    uint32_t context_tokens = 0;
    double us = 0;

    bool operator==(const Shape&) const = default;
  };
  // All that must be kept to go on after a restart.
  struct State {
    std::vector<Shape> shapes;
    std::vector<double> ratios;  // oldest first

    bool operator==(const State&) const = default;
  };

  // The engine took `elapsed_us` for `new_tokens` after `context_tokens`. The first report of all
  // is left out: engines warm up. Nonsense (no tokens, no time) is ignored.
  void OnMeasured(uint32_t new_tokens, uint32_t context_tokens, TimeUs elapsed_us);

  bool known() const { return !shapes_.empty() && samples_ >= kMinSamples; }
  // At scale 1; 0 while nothing is known.
  TimeUs Forecast(uint32_t new_tokens, uint32_t context_tokens) const;
  // s: what the engine takes now over what Forecast says.
  double scale() const { return scale_; }
  // What computing hardly exceeds: promises of an end are made with this.
  double high_scale() const { return high_scale_; }

  State state() const;
  // Drops what is not a number or not positive.
  void Restore(const State& state);

 private:
  void Remember(uint32_t new_tokens, uint32_t context_tokens, double us);
  void Fit();
  void UpdateScale();

  bool warm_ = false;
  size_t samples_ = 0;
  std::vector<Shape> shapes_;
  double a_ = 0, b_ = 0, c_ = 0;
  std::deque<double> ratios_;
  double scale_ = 1;
  double high_scale_ = 1;
};

}  // namespace sluice::adapt
