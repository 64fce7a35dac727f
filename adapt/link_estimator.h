// What one peer's link does, measured from the bytes that arrive: throughput, round trip, stalls.
//
// One per peer, shared by its loads. Pure; one thread at a time. Times are microseconds on the
// caller's monotonic clock and must not fall.
//
// Throughput is bytes over *busy* time, that is time in which at least one byte was asked for and
// had not arrived; an idle link says nothing. It is averaged in bins of 10 ms, weighted by time,
// and multiplied by a low quantile of how earlier averages were kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "adapt/load_types.h"

namespace sluice::adapt {

class LinkEstimator {
 public:
  static constexpr TimeUs kBinUs = 10000;          // busy time of one sample
  static constexpr double kTauUs = 150000;         // memory of the average, busy time
  static constexpr TimeUs kHorizonUs = 200000;     // busy time over which a forecast is judged
  static constexpr TimeUs kMinHorizonUs = 5000;    // shorter ones say too little
  static constexpr size_t kMaxRatios = 120;        // forecasts remembered
  static constexpr size_t kMinRatios = 8;          // fewer are not trusted
  static constexpr double kUntrustedFactor = 0.6;  // instead of a quantile
  static constexpr double kQuantile = 0.1;
  static constexpr TimeUs kMinStallUs = 50000;  // silence that is always allowed
  static constexpr double kStallFrames = 4;     // so is the time of so many frames
  static constexpr size_t kMaxRttSamples = 16;
  static constexpr TimeUs kAgeUs = 10 * 1000000;  // idle time that halves what is remembered
  static constexpr double kForgotten = 0.02;      // weight below which nothing is known

  // Bytes were asked for.
  void OnAsked(uint64_t bytes, TimeUs now_us);
  // Asked bytes arrived, as one frame.
  void OnBytes(uint64_t bytes, TimeUs now_us);
  // Asked bytes will not arrive: failed, cancelled or the stream is over.
  void OnDropped(uint64_t bytes, TimeUs now_us);
  // The first byte of an ask took `elapsed_us`, of which it waited `queue_delay_us` in the server.
  void OnFirstByte(TimeUs elapsed_us, TimeUs queue_delay_us);

  LinkView View(TimeUs now_us);
  uint64_t outstanding_bytes() const { return outstanding_bytes_; }

 private:
  void Advance(TimeUs now_us);
  void CloseBin();
  void CloseHorizon();
  void Age(TimeUs idle_us);
  double Average() const;
  double Trust() const;
  TimeUs Rtt() const;

  uint64_t outstanding_bytes_ = 0;
  TimeUs now_us_ = 0;        // latest time seen
  TimeUs last_byte_us_ = 0;  // or the moment at which the link became busy
  TimeUs idle_since_us_ = 0;

  TimeUs bin_busy_us_ = 0;
  uint64_t bin_bytes_ = 0;
  double weighted_rate_ = 0;  // bytes/us, times weight_
  double weight_ = 0;         // 0..1, how much of the average is measured

  double forecast_ = 0;  // bytes/us at the start of the horizon
  TimeUs horizon_busy_us_ = 0;
  uint64_t horizon_bytes_ = 0;
  std::deque<double> ratios_;  // realised / forecast, oldest first

  double frame_bytes_ = 0;  // smoothed
  std::deque<TimeUs> rtts_us_;
};

}  // namespace sluice::adapt
