#include "tests/sim/clairvoyant.h"

#include <algorithm>
#include <utility>

namespace sluice::sim {
namespace {

class Clairvoyant {
 public:
  Clairvoyant(const World& world, const LoadModel& model, const SimLoad& load)
      : world_(world), model_(model), load_(load), start_us_(load.spec.start_us) {
    work_us_.push_back(0);
    tokens_.push_back(0);
    for (size_t i = 0; i < load.work_us.size(); ++i) {
      work_us_.push_back(work_us_.back() + static_cast<double>(load.work_us[i]));
      tokens_.push_back(tokens_.back() + load.spec.chunks[i].num_tokens);
    }
    token_end_us_ = start_us_ + load.spec.slo_us - world.first_token_us;
  }

  size_t num_chunks() const { return load_.work_us.size(); }
  TimeUs start_us() const { return start_us_; }
  TimeUs token_end_us() const { return token_end_us_; }
  double WorkUs(size_t first, size_t end) const { return work_us_[end] - work_us_[first]; }
  double BaseBytes(size_t first, size_t end) const {
    return (tokens_[end] - tokens_[first]) * model_.token_bytes * model_.size_shares[0];
  }

  // The bases of [first, end) are there and decoded.
  TimeUs LoadedUs(size_t first, size_t end) const {
    if (first >= end) return start_us_;
    const TimeUs arrived_us =
        world_.link.TimeOf(BaseBytes(first, end), start_us_ + world_.rtt_us / 2) +
        world_.rtt_us / 2;
    const TimeUs decode_us = static_cast<TimeUs>(end - first) * load_.decode_us.back();
    return std::max(arrived_us + load_.decode_us.back(), start_us_ + world_.rtt_us + decode_us);
  }
  double BytesUntil(TimeUs loaded_us) const {
    return world_.link.Amount(start_us_ + world_.rtt_us / 2,
                              loaded_us - load_.decode_us.back() - world_.rtt_us / 2);
  }
  TimeUs ComputedUs(double work_us, TimeUs from_us) const {
    return world_.gpu.TimeOf(work_us * 1e-6, from_us);
  }
  // Latest start of computing that ends in time; before the start of the load if there is none.
  TimeUs LatestStartUs(double work_us) const {
    const double spare = world_.gpu.Amount(start_us_, token_end_us_) - work_us * 1e-6;
    return spare < 0 ? start_us_ - 1 : world_.gpu.TimeOf(spare, start_us_);
  }
  // Least loss summed over the chunks [first, end), when `bytes` can come; they hold the bases.
  double Loss(size_t first, size_t end, double bytes) const {
    const double tokens = tokens_[end] - tokens_[first];
    double loss = model_.losses[0];
    bytes -= BaseBytes(first, end);
    for (size_t level = 1; level < model_.losses.size() && bytes > 0; ++level) {
      const double share = model_.size_shares[level] - model_.size_shares[level - 1];
      const double part = std::min(1.0, bytes / (share * model_.token_bytes * tokens));
      loss += part * (model_.losses[level] - model_.losses[level - 1]);
      bytes -= share * model_.token_bytes * tokens;
    }
    return loss * tokens / tokens_.back();
  }
  TimeUs TtftUs(TimeUs done_us) const { return done_us + world_.first_token_us - start_us_; }

 private:
  const World& world_;
  const LoadModel& model_;
  const SimLoad& load_;
  const TimeUs start_us_;
  TimeUs token_end_us_ = 0;
  std::vector<double> work_us_, tokens_;  // of the chunks before
};

// What lies on one side of a cut is loaded, then the rest is computed.
Bound BoundOfOneCut(const Clairvoyant& known, bool loads_front) {
  const size_t n = known.num_chunks();
  Bound bound;
  bound.loss = 1;
  TimeUs best_us = kNever;
  for (size_t cut = 0; cut <= n; ++cut) {
    const auto [first, end] = loads_front ? std::pair<size_t, size_t>(0, cut) : std::pair(cut, n);
    const double work_us = known.WorkUs(0, n) - known.WorkUs(first, end);
    const TimeUs loaded_us = known.LoadedUs(first, end);
    best_us = std::min(best_us, known.ComputedUs(work_us, loaded_us));
    const TimeUs latest_us = known.LatestStartUs(work_us);
    if (latest_us < loaded_us) continue;
    const double loss = first == end ? 0 : known.Loss(first, end, known.BytesUntil(latest_us));
    bound.loss = std::min(bound.loss, loss);
  }
  bound.ttft_us = known.TtftUs(best_us);
  bound.feasible = best_us <= known.token_end_us();
  return bound;
}

}  // namespace

Bound ClairvoyantBidirectional(const World& world, const LoadModel& model, const SimLoad& load) {
  const Clairvoyant known(world, model, load);
  const size_t n = known.num_chunks();
  Bound bound;
  TimeUs best_us = kNever;
  size_t computed = 0;
  for (size_t k = 0; k <= n; ++k) {
    const TimeUs gpu_us = known.ComputedUs(known.WorkUs(0, k), known.start_us());
    if (gpu_us <= known.token_end_us()) computed = k;
    best_us = std::min(best_us, std::max(gpu_us, known.LoadedUs(k, n)));
  }
  bound.ttft_us = known.TtftUs(best_us);
  bound.feasible = best_us <= known.token_end_us();
  if (bound.feasible && computed < n) {
    bound.loss = known.Loss(computed, n, known.BytesUntil(known.token_end_us()));
  }
  return bound;
}

Bound ClairvoyantLoadOnly(const World& world, const LoadModel& model, const SimLoad& load) {
  const Clairvoyant known(world, model, load);
  const size_t n = known.num_chunks();
  Bound bound;
  const TimeUs end_us = known.LoadedUs(0, n);
  bound.ttft_us = known.TtftUs(end_us);
  bound.feasible = end_us <= known.token_end_us();
  if (bound.feasible) bound.loss = known.Loss(0, n, known.BytesUntil(known.token_end_us()));
  return bound;
}

Bound ClairvoyantSuffix(const World& world, const LoadModel& model, const SimLoad& load) {
  return BoundOfOneCut(Clairvoyant(world, model, load), /*loads_front=*/true);
}

Bound ClairvoyantAny(const World& world, const LoadModel& model, const SimLoad& load) {
  return BoundOfOneCut(Clairvoyant(world, model, load), /*loads_front=*/false);
}

}  // namespace sluice::sim
