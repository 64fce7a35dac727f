// Prints how the policies fare over all links: policy_table [--requests N] [--seed N] [--only
// NAME].
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tests/sim/baselines.h"
#include "tests/sim/clairvoyant.h"
#include "tests/sim/workload.h"

namespace sluice::sim {
namespace {

using adapt::RecomputeCapability;

struct Policy {
  const char* name;
  // Either: the bound of what is possible, or what decides.
  std::function<Bound(const World&, const LoadModel&, const SimLoad&)> bound;
  std::function<std::unique_ptr<LoadDriver>(const LoadModel&)> driver;
  RecomputeCapability capability = RecomputeCapability::kNone;
  bool at_the_server = false;  // decides without a round trip
};

std::unique_ptr<LoadDriver> Ships(const LoadModel&) { return std::make_unique<SluiceDriver>(); }

std::vector<Policy> Policies() {
  const auto fixed = [](size_t level) {
    return [level](const LoadModel& model) { return FixedLevel(model, level); };
  };
  return {
      {"clairvoyant, bidirectional", ClairvoyantBidirectional, nullptr},
      {"clairvoyant, load only", ClairvoyantLoadOnly, nullptr},
      {"clairvoyant, one cut", ClairvoyantSuffix, nullptr},
      {"sluice, bidirectional", nullptr, Ships, RecomputeCapability::kBidirectional},
      {"sluice, load only", nullptr, Ships, RecomputeCapability::kNone},
      {"sluice, one cut", nullptr, Ships, RecomputeCapability::kSuffix},
      {"fixed 1/4.5", nullptr, fixed(3), RecomputeCapability::kNone, true},
      {"fixed 1/10", nullptr, fixed(1), RecomputeCapability::kNone, true},
      {"CacheGen, paper", nullptr, CacheGenPaper, RecomputeCapability::kNone, true},
      {"CacheGen, code", nullptr, CacheGenCode, RecomputeCapability::kNone, true},
      {"MPC, quantile", nullptr, PessimisticMpc, RecomputeCapability::kNone, true},
      {"Cake, 16 bits", nullptr, Cake, RecomputeCapability::kNone, true},
  };
}

// One request under one policy.
struct Sample {
  bool feasible = false;  // for the bidirectional bound
  bool missed = false;
  double ttft = 0;  // over the SLO
  double loss = 0;
  double waste = 0, received = 0;
  double gpu_s = 0;
};

struct Totals {
  std::vector<Sample> samples;

  void Print(const char* name, double us_per_request) const {
    double n = 0, missed = 0, feasible = 0, avoidable = 0, loss = 0, j = 0;
    double waste = 0, received = 0, gpu_s = 0;
    std::vector<double> ttfts;
    for (const Sample& sample : samples) {
      ++n;
      missed += sample.missed;
      ttfts.push_back(sample.ttft);
      waste += sample.waste;
      received += sample.received;
      gpu_s += sample.gpu_s;
      if (!sample.feasible) continue;
      ++feasible;
      avoidable += sample.missed;
      loss += sample.loss;
      j += sample.missed ? 1 : sample.loss;
    }
    std::sort(ttfts.begin(), ttfts.end());
    const auto quantile = [&](double q) {
      return ttfts[static_cast<size_t>(q * static_cast<double>(ttfts.size() - 1))];
    };
    std::printf(
        "| %-27s | %5.1f | %5.2f | %5.2f | %5.1f | %4.2f | %5.2f | %4.1f | %4.2f | %5.0f |\n", name,
        100 * missed / n, 100 * avoidable / feasible, 1000 * loss / feasible, 1000 * j / feasible,
        quantile(0.5), quantile(0.99), received > 0 ? 100 * waste / received : 0, gpu_s / n,
        us_per_request);
  }
  double avoid() const {
    double feasible = 0, avoidable = 0;
    for (const Sample& sample : samples) {
      feasible += sample.feasible;
      avoidable += sample.feasible && sample.missed;
    }
    return 100 * avoidable / feasible;
  }
  double j() const {
    double feasible = 0, j = 0;
    for (const Sample& sample : samples) {
      if (!sample.feasible) continue;
      ++feasible;
      j += sample.missed ? 1 : sample.loss;
    }
    return 1000 * j / feasible;
  }
};

class Comparison {
 public:
  Comparison(std::vector<NamedLink> links, int requests, uint64_t seed)
      : links_(std::move(links)), requests_(requests), seed_(seed) {}

  // By set; "" holds all.
  std::map<std::string, Totals> Run(const Policy& policy) const {
    std::map<std::string, Totals> totals;
    for (size_t i = 0; i < links_.size(); ++i) {
      const RateTrace gpu = GpuShare(seed_ + i);
      const std::unique_ptr<LoadDriver> driver = policy.driver ? policy.driver(model_) : nullptr;
      Memory memory;
      model_.Calibrate(memory.cost);
      TimeUs now_us = 0;
      for (const Request& request : Requests(seed_ * 1000 + i, requests_)) {
        World world;
        world.link = links_[i].rate.From(request.trace_us);
        world.gpu = gpu.From(request.trace_us);
        world.first_token_us = model_.first_token_us;
        const SimLoad fresh = MakeLoad(model_, request.tokens, 0, request.slo_us, memory.cost);
        const Bound best = ClairvoyantBidirectional(world, model_, fresh);
        Sample sample = policy.bound ? AtBest(policy.bound(world, model_, fresh), request)
                                     : Play(policy, *driver, world, request, memory, now_us);
        sample.feasible = best.feasible;
        sample.missed = sample.ttft > 1;
        totals[links_[i].set].samples.push_back(sample);
        totals[""].samples.push_back(sample);
      }
    }
    return totals;
  }

 private:
  static Sample AtBest(const Bound& bound, const Request& request) {
    Sample sample;
    sample.ttft =
        bound.feasible
            ? 1
            : std::max(static_cast<double>(bound.ttft_us) / static_cast<double>(request.slo_us),
                       1.0000001);
    sample.loss = bound.feasible ? bound.loss : 0;
    return sample;
  }

  Sample Play(const Policy& policy, LoadDriver& driver, World world, const Request& request,
              Memory& memory, TimeUs& now_us) const {
    now_us += request.gap_us;
    world.link = world.link.From(-now_us);
    world.gpu = world.gpu.From(-now_us);
    world.rtt_us = policy.at_the_server ? 0 : world.rtt_us;
    SimLoad load = MakeLoad(model_, request.tokens, now_us, request.slo_us, memory.cost);
    load.spec.capability = policy.capability;
    load.spec.limit_us = 300 * 1000000;
    load.spec.loss_stop = kLossStop;
    const LoadOutcome outcome = Simulate(world, {load}, driver, memory)[0];
    now_us += outcome.ttft_us;
    Sample sample;
    sample.ttft = static_cast<double>(outcome.ttft_us) / static_cast<double>(request.slo_us);
    sample.loss = outcome.loss;
    sample.received = static_cast<double>(outcome.received_bytes);
    sample.waste = static_cast<double>(outcome.wasted_bytes);
    sample.gpu_s = static_cast<double>(outcome.gpu_us) * 1e-6;
    return sample;
  }

  const LoadModel model_;
  const std::vector<NamedLink> links_;
  const int requests_;
  const uint64_t seed_;
  static constexpr double kLossStop = 0.0005;
};

int Main(int argc, char** argv) {
  int requests = 120;
  uint64_t seed = 1;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--requests") == 0) requests = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--only") == 0) only = argv[i + 1];
  }
  std::vector<NamedLink> links = GeneratedLinks(seed, 3);
  const std::vector<NamedLink> recorded = RecordedLinks(TraceFolder());
  if (recorded.empty()) std::printf("No recorded traces: set SLUICE_TRACES to their folder.\n");
  links.insert(links.end(), recorded.begin(), recorded.end());
  std::printf("%zu links, %d requests each, seed %lu\n\n", links.size(), requests, seed);
  std::printf(
      "| policy | viol %% | avoid %% | loss e-3 | J | p50 | p99 | waste %% | GPU s | us |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|\n");
  const Comparison comparison(links, requests, seed);
  std::vector<std::pair<const char*, std::map<std::string, Totals>>> all;
  for (const Policy& policy : Policies()) {
    if (std::string(policy.name).find(only) == std::string::npos) continue;
    const auto start = std::chrono::steady_clock::now();
    std::map<std::string, Totals> totals = comparison.Run(policy);
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - start;
    totals[""].Print(policy.name, spent.count() / static_cast<double>(totals[""].samples.size()));
    all.emplace_back(policy.name, std::move(totals));
  }
  std::printf("\n| avoidable misses %% (J)      |");
  for (const auto& [set, totals] : all.front().second) {
    if (!set.empty()) std::printf(" %s |", set.c_str());
  }
  std::printf("\n");
  for (const auto& [name, sets] : all) {
    std::printf("| %-27s |", name);
    for (const auto& [set, totals] : sets) {
      if (!set.empty()) std::printf(" %.2f (%.1f) |", totals.avoid(), totals.j());
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace sluice::sim

int main(int argc, char** argv) { return sluice::sim::Main(argc, argv); }
