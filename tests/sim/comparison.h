// Policies over the same links and loads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/clairvoyant.h"
#include "tests/sim/workload.h"

namespace sluice::sim {

struct Policy {
  std::string name;
  // The least that a loader of its kind can lose.
  Bound (*bound)(const World&, const LoadModel&, const SimLoad&) = nullptr;
  // What decides; without it the policy is the bound itself.
  std::function<std::unique_ptr<LoadDriver>(const LoadModel&)> driver;
  adapt::RecomputeCapability capability = adapt::RecomputeCapability::kNone;
  bool at_the_server = false;  // decides without a round trip
};

// What ships, with each capability, other loaders' rules, and the bounds.
std::vector<Policy> AllPolicies();
// The one of that name.
Policy PolicyNamed(const std::string& name);

// How a policy fared.
class Score {
 public:
  struct Sample {
    bool feasible = false;  // for loading and computing at once, by one who knows all
    bool missed = false;
    bool bounded = false;  // the policy's own bound is in time
    double loss = 0, bound_loss = 0;
    double sent_mb = 0, gpu_s = 0;
  };

  void Add(const Sample& sample);

  double misses_percent() const { return 100 * missed_ / requests_; }
  double avoidable_percent() const { return 100 * avoidable_ / feasible_; }
  // Mean over the requests that the policy's own bound serves in time.
  double loss() const { return loss_ / bounded_; }
  double loss_ratio() const { return loss_ / bound_loss_; }
  double sent_mb() const { return sent_mb_ / requests_; }
  double gpu_s() const { return gpu_s_ / requests_; }

 private:
  double requests_ = 0, missed_ = 0, feasible_ = 0, avoidable_ = 0, bounded_ = 0;
  double loss_ = 0, bound_loss_ = 0, sent_mb_ = 0, gpu_s_ = 0;
};

class Comparison {
 public:
  Comparison(std::vector<NamedLink> links, int requests_per_link, uint64_t seed)
      : links_(std::move(links)), requests_per_link_(requests_per_link), seed_(seed) {}

  // By set of links; "" holds all.
  std::map<std::string, Score> Run(const Policy& policy) const;

 private:
  static constexpr double kLossStop = 0.0005;

  LoadOutcome Play(const Policy& policy, LoadDriver& driver, World world, const Request& request,
                   Memory& memory, TimeUs& now_us) const;

  const LoadModel model_;
  const std::vector<NamedLink> links_;
  const int requests_per_link_;
  const uint64_t seed_;
};

}  // namespace sluice::sim
