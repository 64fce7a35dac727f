#include "tests/sim/comparison.h"

#include <algorithm>

#include "tests/sim/baselines.h"

namespace sluice::sim {

using adapt::RecomputeCapability;

std::vector<Policy> AllPolicies() {
  const auto ships = [](const LoadModel&) { return std::make_unique<SluiceDriver>(); };
  const auto fixed = [](size_t level) {
    return [level](const LoadModel& model) { return FixedLevel(model, level); };
  };
  constexpr RecomputeCapability kNone = RecomputeCapability::kNone;
  return {
      {"clairvoyant, both ends", ClairvoyantBidirectional, nullptr},
      {"sluice, both ends", ClairvoyantBidirectional, ships, RecomputeCapability::kBidirectional},
      {"clairvoyant, one cut", ClairvoyantSuffix, nullptr},
      {"sluice, one cut", ClairvoyantSuffix, ships, RecomputeCapability::kSuffix},
      {"clairvoyant, any chunk", ClairvoyantAny, nullptr},
      {"sluice, any chunk", ClairvoyantAny, ships, RecomputeCapability::kAny},
      {"clairvoyant, load only", ClairvoyantLoadOnly, nullptr},
      {"sluice, load only", ClairvoyantLoadOnly, ships, kNone},
      {"fixed level, 1/4.5", ClairvoyantLoadOnly, fixed(3), kNone, true},
      {"fixed level, 1/10", ClairvoyantLoadOnly, fixed(1), kNone, true},
      {"CacheGen, paper", ClairvoyantBidirectional, CacheGenPaper, kNone, true},
      {"CacheGen, code", ClairvoyantBidirectional, CacheGenCode, kNone, true},
      {"MPC, low quantile", ClairvoyantBidirectional, PessimisticMpc, kNone, true},
      {"Cake, 16 bits, both ends", ClairvoyantBidirectional, Cake, kNone, true},
  };
}

Policy PolicyNamed(const std::string& name) {
  for (Policy& policy : AllPolicies()) {
    if (policy.name == name) return policy;
  }
  return {};
}

void Score::Add(const Sample& sample) {
  ++requests_;
  missed_ += sample.missed;
  feasible_ += sample.feasible;
  avoidable_ += sample.feasible && sample.missed;
  sent_mb_ += sample.sent_mb;
  gpu_s_ += sample.gpu_s;
  if (!sample.bounded) return;
  ++bounded_;
  loss_ += sample.loss;
  bound_loss_ += sample.bound_loss;
}

std::map<std::string, Score> Comparison::Run(const Policy& policy) const {
  std::map<std::string, Score> scores;
  for (size_t i = 0; i < links_.size(); ++i) {
    const RateTrace gpu = GpuShare(seed_ + i);
    const std::unique_ptr<LoadDriver> driver = policy.driver ? policy.driver(model_) : nullptr;
    Memory memory;
    model_.Calibrate(memory.cost);
    TimeUs now_us = 0;
    for (const Request& request : Requests(seed_ * 1000 + i, requests_per_link_)) {
      World world;
      world.link = links_[i].rate.From(request.trace_us);
      world.gpu = gpu.From(request.trace_us);
      world.first_token_us = model_.first_token_us;
      const SimLoad load = MakeLoad(model_, request.tokens, 0, request.slo_us, memory.cost);
      const Bound bound = policy.bound(world, model_, load);
      Score::Sample sample;
      sample.feasible = ClairvoyantBidirectional(world, model_, load).feasible;
      sample.bounded = bound.feasible;
      sample.bound_loss = sample.loss = bound.loss;
      sample.missed = !bound.feasible;
      if (driver != nullptr) {
        const LoadOutcome outcome = Play(policy, *driver, world, request, memory, now_us);
        sample.missed = outcome.ttft_us > request.slo_us;
        sample.loss = outcome.loss;
        sample.sent_mb = static_cast<double>(outcome.received_bytes) * 1e-6;
        sample.gpu_s = static_cast<double>(outcome.gpu_us) * 1e-6;
      }
      scores[links_[i].set].Add(sample);
      scores[""].Add(sample);
    }
  }
  return scores;
}

LoadOutcome Comparison::Play(const Policy& policy, LoadDriver& driver, World world,
                             const Request& request, Memory& memory, TimeUs& now_us) const {
  now_us += request.gap_us;
  world.link = world.link.From(-now_us);
  world.gpu = world.gpu.From(-now_us);
  if (policy.at_the_server) world.rtt_us = 0;
  SimLoad load = MakeLoad(model_, request.tokens, now_us, request.slo_us, memory.cost);
  load.spec.capability = policy.capability;
  load.spec.limit_us = 300 * 1000000;
  load.spec.loss_stop = kLossStop;
  LoadOutcome outcome = Simulate(world, {load}, driver, memory)[0];
  now_us += outcome.ttft_us;
  return outcome;
}

}  // namespace sluice::sim
