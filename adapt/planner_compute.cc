// What the engine computes: beside the load from the front, or after it behind a cut.
#include <algorithm>
#include <limits>

#include "adapt/planner.h"

namespace sluice::adapt {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kMaxComputeUs = 1e15;  // sums of times stay far from overflow

// Microseconds in which `bytes` come.
double TransferUs(double bytes, double bytes_per_s) {
  if (bytes <= 0) return 0;
  return bytes_per_s > 0 ? bytes / bytes_per_s * 1e6 : kNever;
}

}  // namespace

bool LoadPlanner::computes_beside() const {
  return spec_.capability == RecomputeCapability::kBidirectional;
}

bool LoadPlanner::computes_after() const {
  return spec_.capability == RecomputeCapability::kSuffix ||
         spec_.capability == RecomputeCapability::kAny;
}

bool LoadPlanner::cost_known() const {
  return pace_.scale > 0 && !chunks_.empty() && spec_.compute_us.size() == chunks_.size();
}

// Until bytes of so many chunks have come and are decoded at a step. Both go on at the same time,
// so the slower of the two counts.
double LoadPlanner::LoadUs(double bytes, double bytes_per_s, size_t num_chunks, int step) const {
  const double transfer_us = TransferUs(bytes, bytes_per_s);
  if (spec_.decode_us.empty()) return transfer_us;
  const size_t known = std::min<size_t>(step, spec_.decode_us.size() - 1);
  return std::max(transfer_us,
                  static_cast<double>(spec_.decode_us[known]) * static_cast<double>(num_chunks));
}

double LoadPlanner::ToldComputeUs(uint32_t chunk) const {
  return chunk < spec_.compute_us.size() ? static_cast<double>(spec_.compute_us[chunk]) : 0;
}

TimeUs LoadPlanner::ComputeUs(uint32_t chunk) const {
  if (!cost_known()) return 0;
  const double us = ToldComputeUs(chunk) * pace_.scale;
  return static_cast<TimeUs>(std::min(us, kMaxComputeUs));
}

// What is given up and not computed by the end of the load delays the first token.
TimeUs LoadPlanner::ComputeAfter() const {
  if (spec_.capability == RecomputeCapability::kNone || !cost_known()) return 0;
  return static_cast<TimeUs>(std::min(left_compute_us_ * pace_.high_scale, kMaxComputeUs));
}

TimeUs LoadPlanner::refine_until_us() const { return last_ask_us_ - ComputeAfter(); }

bool LoadPlanner::Covered() const {
  return std::all_of(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) {
    return chunk.state == State::kGivenUp || chunk.loaded >= 0;
  });
}

// The engine has been told to compute a chunk and may still be at it. One that takes more than
// twice as long as it should has forgotten it.
bool LoadPlanner::Computing() const {
  if (computing_since_us_ < 0) return false;
  const TimeUs limit_us = cost_known() ? 2 * ComputeUs(next_compute_) : spec_.slo_us / 4;
  return now_us_ - computing_since_us_ <= limit_us;
}

bool LoadPlanner::OverBackstop() const {
  return static_cast<double>(now_us_ - spec_.start_us) >
         kComputeBackstop * static_cast<double>(spec_.slo_us);
}

// Would the link alone make every chunk good in time? If that is in doubt the engine helps.
bool LoadPlanner::WantCompute() const {
  if (link_.stalled || demoted_ || link_state_ != LinkState::kUp) return true;
  if (!Covered() && OverBackstop()) return true;
  double missing_bytes = static_cast<double>(unanswered_bytes_);
  size_t missing = 0;
  int step = 0;
  for (uint32_t i = next_compute_; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (chunk.state != State::kOpen) continue;
    missing += chunk.loaded < chunk.good ? 1 : 0;
    step = std::max(step, chunk.good);
    missing_bytes += static_cast<double>(chunk.Bytes(chunk.asked + 1, chunk.good));
  }
  const TimeUs left_us = std::max<TimeUs>(refine_until_us() - now_us_, 0);
  const double share = want_compute_ ? kComputeOff : kComputeOn;
  return LoadUs(missing_bytes, link_.bytes_per_s, missing, step) >
         share * static_cast<double>(left_us);
}

void LoadPlanner::DecideCompute() {
  if (!computes_beside()) return;
  want_compute_ = WantCompute();
  if (computing_since_us_ >= 0 || next_compute_ >= chunks_.size()) return;
  const Chunk& chunk = chunks_[next_compute_];
  std::string_view reason = "not loaded: the engine must";
  if (chunk.state != State::kGivenUp) {
    reason = "the link alone may not make every chunk good in time";
    if (!want_compute_ || chunk.loaded >= chunk.good) return;
    // Only where a loaded version is at hand need a forecast say that computing is worth while.
    if (chunk.loaded >= 0 && now_us_ + ComputeUs(next_compute_) > refine_until_us()) return;
  }
  computing_since_us_ = now_us_;
  next_.compute = Compute{next_compute_, reason};
}

// Before the first ask: is it worth while to load at all?
void LoadPlanner::DecideDecline() {
  const bool measured = cost_known() && link_.mean_bytes_per_s > 0;
  if (!measured || link_.idle_us > kMaxEstimateAgeUs ||
      spec_.capability == RecomputeCapability::kNone)
    return;
  double compute_us = 0, all_bytes = 0, last_bytes = 0;
  size_t stored = 0;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (chunk.asked >= 0 || chunk.computed) return;
    if (chunk.state != State::kOpen) continue;
    compute_us += static_cast<double>(ComputeUs(i));
    last_bytes = static_cast<double>(chunk.Bytes(0, 0));
    all_bytes += last_bytes;
    ++stored;
  }
  // An engine that computes beside the load gains from the first chunk that comes before it is
  // through; otherwise all of them are waited for.
  const double bytes = computes_beside() ? last_bytes : all_bytes;
  const double load_us = static_cast<double>(link_.rtt_us) +
                         LoadUs(bytes, link_.mean_bytes_per_s, computes_beside() ? 1 : stored, 0);
  if (all_bytes == 0 || compute_us > load_us) return;
  // An engine that may be late leaves loading as the only hope.
  const double high_us = compute_us * pace_.high_scale / pace_.scale;
  if (high_us > static_cast<double>(last_ask_us_ - now_us_)) return;
  Cut(CutOrder(), 0, "computing all of it is faster than loading");
}

// The chunks that a cut can part, those that it keeps longest first. Where nothing may be loaded
// behind a gap they go from the front to the first that is given up; else what is loaded is kept,
// and then what is dear to compute: the back.
std::vector<uint32_t> LoadPlanner::CutOrder() const {
  const bool suffix = spec_.capability == RecomputeCapability::kSuffix;
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].state != State::kGivenUp) {
      order.push_back(i);
    } else if (suffix) {
      break;
    }
  }
  if (suffix) return order;
  const auto rank = [this](uint32_t i) {
    return chunks_[i].state == State::kLoaded ? 0 : chunks_[i].loaded >= 0 ? 1 : 2;
  };
  std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t one, uint32_t other) { return rank(one) < rank(other); });
  return order;
}

// What an engine that computes after the load is left: what lies behind a cut in CutOrder. As long
// as the link is expected to bring the rest in time nothing is given up, except for quality. If it
// is not, the rest is left to the engine at the last moment at which that meets the SLO; an engine
// that would be late as well leaves loading as the only hope until the SLO is missed, and then what
// ends sooner is done: a link that is slow now may have stalled, and recover.
void LoadPlanner::DecideCut() {
  if (!computes_after() || !cost_known()) return;
  const std::vector<uint32_t> order = CutOrder();
  size_t covered = 0;
  while (covered < order.size() && chunks_[order[covered]].loaded >= 0) ++covered;
  double missing_bytes = 0;
  size_t missing = 0;
  TimeUs rest_us = 0;  // computing what has no base yet
  for (size_t at = covered; at < order.size(); ++at) {
    const Chunk& chunk = chunks_[order[at]];
    missing += chunk.loaded < 0 ? 1 : 0;
    rest_us += ComputeUs(order[at]);
    if (chunk.asked < 0) missing_bytes += static_cast<double>(chunk.Bytes(0, 0));
  }
  for (const Flight& flight : flights_) {
    if (flight.first_step == 0) missing_bytes += static_cast<double>(flight.missing_bytes);
  }
  const double left_us = static_cast<double>(refine_until_us() - now_us_);
  const double load_us = LoadUs(missing_bytes, link_.mean_bytes_per_s, missing, 0);
  if (load_us <= left_us) {
    // By what other loads or a load's first moments measured nothing is cut: a cut is for good.
    if (covered == 0 || !OverBackstop()) return;
    const size_t best = BestCut(order);
    // Not before what is kept is there: the cut uses up the time that a slower link would need.
    if (best < order.size() && best <= covered) {
      Cut(order, best, "computing the rest leaves time for more quality");
    }
    return;
  }
  if (covered == order.size() || !(link_.mean_bytes_per_s > 0)) return;
  const double compute_us = static_cast<double>(rest_us);
  // Of a link that has stalled less is to be expected than of the engine.
  const double margin = link_.stalled ? 1 : pace_.high_scale / pace_.scale;
  const double slack_us = left_us - compute_us * margin;
  if (slack_us >= 0) {
    if (slack_us < kTickUs) Cut(order, covered, "the last moment at which computing meets the SLO");
  } else if (left_us <= 0 && compute_us < load_us) {
    Cut(order, covered, "computing the rest is faster than loading it");
  }
}

// The cut of `order` with the least expected loss, its end unless another is clearly better. Loaded
// chunks are taken to reach the levels that the link allows until the rest must be computed;
// nothing counts as better than good.
size_t LoadPlanner::BestCut(const std::vector<uint32_t>& order) const {
  constexpr int kMaxSteps = 8;
  double missing[kMaxSteps] = {};  // bytes until all chunks before the cut have step s
  double loss[kMaxSteps] = {};     // summed over tokens, once they have
  double computed_loss = 0;        // of the chunks behind the cut
  double after_us = 0;
  const auto high_us = [&](uint32_t chunk) { return ToldComputeUs(chunk) * pace_.high_scale; };
  const auto good_loss = [&](const Chunk& chunk) {
    return std::max(chunk.ladder.step_loss[chunk.good], spec_.loss_stop) * chunk.ladder.num_tokens;
  };
  for (const uint32_t i : order) {
    computed_loss += good_loss(chunks_[i]);
    after_us += high_us(i);
  }
  const double left_us = static_cast<double>(refine_until_us() - now_us_);
  double best_loss = kNever, end_loss = kNever;
  size_t best = order.size();
  for (size_t cut = 0;; ++cut) {
    const double budget = link_.mean_bytes_per_s * (left_us - after_us) * 1e-6;
    double expected = kNever;
    if (left_us >= after_us && budget >= missing[0]) {
      int step = 0;
      while (step + 1 < kMaxSteps && missing[step + 1] <= budget) ++step;
      expected = loss[step];
      if (step + 1 < kMaxSteps && missing[step + 1] > missing[step]) {
        const double part = (budget - missing[step]) / (missing[step + 1] - missing[step]);
        expected += part * (loss[step + 1] - loss[step]);
      }
    }
    const bool final = cut < order.size() && chunks_[order[cut]].state == State::kLoaded;
    if (!final && expected + computed_loss < best_loss) {
      best_loss = expected + computed_loss;
      best = cut;
    }
    if (cut == order.size()) {
      end_loss = expected;
      break;
    }
    const Chunk& chunk = chunks_[order[cut]];
    int reached = std::max(std::min(chunk.asked, chunk.good), 0);
    uint64_t bytes = chunk.Bytes(chunk.asked + 1, reached);
    for (int step = 0; step < kMaxSteps; ++step) {
      if (step > reached && step <= chunk.good) bytes += chunk.ladder.step_bytes[++reached];
      missing[step] += static_cast<double>(bytes);
      loss[step] +=
          std::max(chunk.ladder.step_loss[reached], spec_.loss_stop) * chunk.ladder.num_tokens;
    }
    computed_loss -= good_loss(chunk);
    after_us -= high_us(order[cut]);
  }
  return best_loss < (1 - kCutGain) * end_loss ? best : order.size();
}

// Gives up the chunks of `order` from `first` on.
void LoadPlanner::Cut(const std::vector<uint32_t>& order, size_t first, std::string_view reason) {
  for (size_t at = first; at < order.size(); ++at) {
    if (chunks_[order[at]].final()) continue;
    GiveUpChunk(order[at], GiveUpReason::kComputeFaster, reason);
  }
}

}  // namespace sluice::adapt
