#include "adapt/link_estimator.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice::adapt {

void LinkEstimator::OnAsked(uint64_t bytes, TimeUs now_us) {
  Advance(now_us);
  if (bytes == 0) return;
  if (outstanding_bytes_ == 0) {
    Age(now_us_ - idle_since_us_);
    last_byte_us_ = now_us_;
  }
  outstanding_bytes_ += bytes;
}

void LinkEstimator::OnBytes(uint64_t bytes, TimeUs now_us) {
  Advance(now_us);
  bytes = std::min(bytes, outstanding_bytes_);
  if (bytes == 0) return;
  last_byte_us_ = now_us_;
  bin_bytes_ += bytes;
  horizon_bytes_ += bytes;
  const double frame = static_cast<double>(bytes);
  frame_bytes_ = frame_bytes_ == 0 ? frame : 0.8 * frame_bytes_ + 0.2 * frame;
  OnDropped(bytes, now_us);
}

void LinkEstimator::OnDropped(uint64_t bytes, TimeUs now_us) {
  Advance(now_us);
  if (outstanding_bytes_ == 0) return;
  outstanding_bytes_ -= std::min(bytes, outstanding_bytes_);
  if (outstanding_bytes_ > 0) return;
  idle_since_us_ = now_us_;
  CloseBin();
  CloseHorizon();
}

void LinkEstimator::OnFirstByte(TimeUs elapsed_us, TimeUs queue_delay_us) {
  rtts_us_.push_back(std::max<TimeUs>(elapsed_us - std::max<TimeUs>(queue_delay_us, 0), 0));
  if (rtts_us_.size() > kMaxRttSamples) rtts_us_.pop_front();
}

LinkView LinkEstimator::View(TimeUs now_us) {
  Advance(now_us);
  LinkView view;
  if (outstanding_bytes_ == 0) view.idle_us = now_us_ - idle_since_us_;
  view.rtt_us = Rtt();
  const double average = Average();
  if (outstanding_bytes_ > 0) {
    double allowed_us = static_cast<double>(std::max<TimeUs>(3 * view.rtt_us, kMinStallUs));
    if (average > 0) allowed_us = std::max(allowed_us, kStallFrames * frame_bytes_ / average);
    view.stalled = static_cast<double>(now_us_ - last_byte_us_) > allowed_us;
  }
  // The silence of a stall is in the average already; no further caution is due.
  view.mean_bytes_per_s = average * 1e6;
  view.bytes_per_s = average * (view.stalled ? 1 : Trust()) * 1e6;
  return view;
}

// Accounts for the busy time up to now, bin by bin.
void LinkEstimator::Advance(TimeUs now_us) {
  if (now_us <= now_us_) return;
  TimeUs busy_us = outstanding_bytes_ > 0 ? now_us - now_us_ : 0;
  now_us_ = now_us;
  // After a second of silence every further bin says the same.
  busy_us = std::min<TimeUs>(busy_us, 1000000);
  while (busy_us > 0) {
    const TimeUs part_us = std::min(busy_us, kBinUs - bin_busy_us_);
    bin_busy_us_ += part_us;
    horizon_busy_us_ += part_us;
    busy_us -= part_us;
    if (bin_busy_us_ >= kBinUs) CloseBin();
    if (horizon_busy_us_ >= kHorizonUs) CloseHorizon();
  }
}

void LinkEstimator::CloseBin() {
  if (bin_busy_us_ == 0) return;
  const double busy_us = static_cast<double>(bin_busy_us_);
  const double gain = 1 - std::exp(-busy_us / kTauUs);
  const double rate = static_cast<double>(bin_bytes_) / busy_us;
  weighted_rate_ += gain * (rate - weighted_rate_);
  weight_ += gain * (1 - weight_);
  bin_busy_us_ = 0;
  bin_bytes_ = 0;
}

void LinkEstimator::CloseHorizon() {
  if (forecast_ > 0 && horizon_busy_us_ >= kMinHorizonUs) {
    const double rate = static_cast<double>(horizon_bytes_) / static_cast<double>(horizon_busy_us_);
    ratios_.push_back(rate / forecast_);
    if (ratios_.size() > kMaxRatios) ratios_.pop_front();
  }
  forecast_ = Average();
  horizon_busy_us_ = 0;
  horizon_bytes_ = 0;
}

// What was measured long ago counts for less; the next sample moves the average by more.
void LinkEstimator::Age(TimeUs idle_us) {
  for (; idle_us >= kAgeUs && weight_ > kForgotten; idle_us -= kAgeUs) {
    weighted_rate_ /= 2;
    weight_ /= 2;
    ratios_.erase(ratios_.begin(), ratios_.begin() + static_cast<long>((ratios_.size() + 1) / 2));
  }
  if (weight_ > kForgotten) return;
  weighted_rate_ = 0;
  weight_ = 0;
  forecast_ = 0;
  rtts_us_.clear();
}

double LinkEstimator::Average() const { return weight_ > 0 ? weighted_rate_ / weight_ : 0; }

double LinkEstimator::Trust() const {
  if (ratios_.size() < kMinRatios) return kUntrustedFactor;
  std::vector<double> sorted(ratios_.begin(), ratios_.end());
  const auto nth =
      sorted.begin() + static_cast<long>(kQuantile * static_cast<double>(sorted.size()));
  std::nth_element(sorted.begin(), nth, sorted.end());
  return std::min(*nth, 1.0);
}

// The least of the latest samples: the others waited behind bytes on the wire.
TimeUs LinkEstimator::Rtt() const {
  return rtts_us_.empty() ? 0 : *std::min_element(rtts_us_.begin(), rtts_us_.end());
}

}  // namespace sluice::adapt
