// What holds for every load on every link. Each load is played under the referee as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/clairvoyant.h"
#include "tests/sim/referee.h"
#include "tests/sim/seed.h"
#include "tests/sim/workload.h"

namespace sluice::sim {
namespace {

using adapt::AskClass;
using adapt::LinkView;
using adapt::RecomputeCapability;

constexpr TimeUs kSecond = 1000000;
constexpr TimeUs kWindowUs = adapt::LinkScheduler::kWindowSlackUs;
constexpr double kLossStop = 0.0005;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRequestsPerLink = 2;
#else
constexpr int kRequestsPerLink = 10;
#endif

// The decoder is not what is tested.
LoadModel Model() {
  LoadModel model;
  model.decode_bytes_per_s = 1e12;
  return model;
}

// A peer that is new to the client, and an engine that is not.
Memory Fresh() {
  Memory memory;
  Model().Calibrate(memory.cost);
  return memory;
}

SimLoad Load(uint32_t tokens, TimeUs slo_us, RecomputeCapability capability) {
  SimLoad load = MakeLoad(Model(), tokens, 0, slo_us, Fresh().cost);
  load.spec.capability = capability;
  load.spec.limit_us = 300 * kSecond;
  load.spec.loss_stop = kLossStop;
  return load;
}

World Constant(double bytes_per_s) {
  World world;
  world.link = ConstantRate(bytes_per_s);
  return world;
}

std::vector<LoadOutcome> Play(const World& world, const std::vector<SimLoad>& loads,
                              const Referee::Distortion& distort = nullptr,
                              const Watcher& watcher = {}, Memory memory = Fresh()) {
  Referee referee(loads, distort);
  std::vector<LoadOutcome> outcomes = Simulate(world, loads, referee, memory, watcher);
  referee.CheckOutcomes(outcomes);
  EXPECT_EQ(referee.faults().size(), 0u) << absl::StrJoin(referee.faults(), "\n");
  return outcomes;
}

struct Trial {
  World world;
  SimLoad load;
  std::string name;

  bool Misses(const LoadOutcome& outcome) const { return outcome.ttft_us > load.spec.slo_us; }
};

// Calls `check` with loads over links of all generated kinds.
template <typename Check>
void ForEachTrial(RecomputeCapability capability, const Check& check) {
  const uint64_t seed = TestSeed();
  const std::vector<NamedLink> links = GeneratedLinks(seed, 1);
  for (size_t i = 0; i < links.size(); ++i) {
    const RateTrace gpu = GpuShare(seed + i);
    for (const Request& request : Requests(seed * 1000 + i, kRequestsPerLink)) {
      Trial trial;
      trial.world.link = links[i].rate.From(request.trace_us);
      trial.world.gpu = gpu.From(request.trace_us);
      trial.load = Load(request.tokens, request.slo_us, capability);
      trial.name = absl::StrCat(links[i].name, ", ", request.tokens, " tokens, SLO ",
                                request.slo_us, " us, from ", request.trace_us);
      SCOPED_TRACE(trial.name);
      check(trial);
    }
  }
}

// A link that earlier loads have measured; loads go on Later.
constexpr TimeUs kMeasuredUs = 20 * kSecond;

Memory Measured(const World& world) {
  Memory memory = Fresh();
  SluiceDriver driver;
  for (TimeUs start_us = 0; start_us < kMeasuredUs; start_us += 5 * kSecond) {
    SimLoad load = Load(8192, kSecond, RecomputeCapability::kNone);
    load.spec.start_us = start_us;
    Simulate(world, {load}, driver, memory);
  }
  return memory;
}

SimLoad Later(SimLoad load) {
  load.spec.start_us += kMeasuredUs;
  return load;
}

// Bytes of the steps up to the first that is good enough.
double GoodBytes(const SimLoad& load) {
  double bytes = 0;
  for (const adapt::ChunkLadder& ladder : load.spec.chunks) {
    for (size_t step = 0; step < ladder.step_bytes.size(); ++step) {
      bytes += static_cast<double>(ladder.step_bytes[step]);
      if (ladder.step_loss[step] <= kLossStop) break;
    }
  }
  return bytes;
}

double BaseBytes(const SimLoad& load, size_t first) {
  double bytes = 0;
  for (size_t i = first; i < load.spec.chunks.size(); ++i) {
    bytes += static_cast<double>(load.spec.chunks[i].step_bytes[0]);
  }
  return bytes;
}

double WorkUs(const SimLoad& load, size_t first, size_t end) {
  double us = 0;
  for (size_t i = first; i < std::min(end, load.work_us.size()); ++i) {
    us += static_cast<double>(load.work_us[i]);
  }
  return us;
}

// Could link and engine meet in time if the engine had a chunk more to compute, and the link a
// window more to carry?
bool FeasibleWithSlack(const World& world, const SimLoad& load, TimeUs slack_us) {
  const TimeUs end_us = load.spec.slo_us - world.first_token_us - slack_us;
  const TimeUs half_us = world.rtt_us / 2;
  for (size_t met = 0; met <= load.work_us.size(); ++met) {
    const TimeUs computed_us = world.gpu.TimeOf(WorkUs(load, 0, met + 1) * 1e-6, 0);
    const TimeUs loaded_us =
        world.link.TimeOf(BaseBytes(load, met), half_us) + half_us + load.decode_us[0];
    const bool loads = met < load.work_us.size();
    if (loads && loaded_us + kWindowUs + world.rtt_us > end_us) continue;
    if (met == 0 || computed_us <= end_us) return true;
  }
  return false;
}

TEST(SimInvariant, EveryChunkIsCoveredOnceAndStaysSo) {
  for (const RecomputeCapability capability :
       {RecomputeCapability::kNone, RecomputeCapability::kSuffix,
        RecomputeCapability::kBidirectional, RecomputeCapability::kAny}) {
    ForEachTrial(capability, [](const Trial& trial) {
      const LoadOutcome outcome = Play(trial.world, {trial.load})[0];
      EXPECT_EQ(outcome.steps.size(), trial.load.spec.chunks.size());
    });
  }
}

TEST(SimInvariant, TheEngineComputesAPrefix) {
  ForEachTrial(RecomputeCapability::kBidirectional, [](const Trial& trial) {
    uint32_t next = 0;
    Watcher watcher;
    watcher.computed = [&](size_t, TimeUs, uint32_t chunk) { EXPECT_EQ(chunk, next++); };
    const LoadOutcome outcome = Play(trial.world, {trial.load}, nullptr, watcher)[0];
    for (uint32_t i = 0; i < next; ++i) EXPECT_EQ(outcome.steps[i], LoadOutcome::kComputed);
    for (uint32_t i = next; i < outcome.steps.size(); ++i) EXPECT_GE(outcome.steps[i], 0);
  });
}

TEST(SimInvariant, NoRefinementIsAskedBeforeTheLastBase) {
  ForEachTrial(RecomputeCapability::kNone, [](const Trial& trial) {
    size_t bases = 0;
    Watcher watcher;
    watcher.actions = [&](size_t, TimeUs now_us, const adapt::Actions& actions) {
      for (const adapt::Ask& ask : actions.asks) {
        bases += ask.ask_class == AskClass::kBase;
        if (ask.ask_class == AskClass::kBase) continue;
        EXPECT_EQ(bases, trial.load.spec.chunks.size());
        EXPECT_LT(now_us, trial.load.spec.slo_us - trial.load.spec.reserve_us);
      }
    };
    Play(trial.world, {trial.load}, nullptr, watcher);
  });
}

TEST(SimInvariant, AStepOnlyRisesWhateverFails) {
  ForEachTrial(RecomputeCapability::kNone, [](Trial trial) {
    trial.world.failure_rate = 0.3;
    trial.load.spec.limit_us = trial.load.spec.slo_us;
    std::vector<int> last(trial.load.spec.chunks.size(), -1);
    Watcher watcher;
    watcher.decoded = [&](size_t, TimeUs, uint32_t chunk, int step) {
      EXPECT_GT(step, last[chunk]);
      last[chunk] = step;
    };
    EXPECT_EQ(Play(trial.world, {trial.load}, nullptr, watcher)[0].steps, last);
  });
}

TEST(SimInvariant, WhatIsFeasibleIsInTimeWhateverTheEstimateBelowTheTruth) {
  const Referee::Distortion distortions[] = {
      nullptr, [](LinkView& link) { link.bytes_per_s = link.mean_bytes_per_s = 0; },
      [random = std::mt19937_64(TestSeed())](LinkView& link) mutable {
        const double share = std::uniform_real_distribution<double>(0, 1)(random);
        link.bytes_per_s *= share;
        link.mean_bytes_per_s *= share;
      }};
  for (const Referee::Distortion& distort : distortions) {
    ForEachTrial(RecomputeCapability::kBidirectional, [&](const Trial& trial) {
      if (!FeasibleWithSlack(trial.world, trial.load, 0)) return;
      EXPECT_LE(Play(trial.world, {trial.load}, distort)[0].ttft_us, trial.load.spec.slo_us);
    });
  }
}

TEST(SimInvariant, AnInfiniteEstimateCostsATenthOfTheSlo) {
  ForEachTrial(RecomputeCapability::kBidirectional, [](const Trial& trial) {
    if (!FeasibleWithSlack(trial.world, trial.load, trial.load.spec.slo_us / 10)) return;
    const LoadOutcome outcome = Play(trial.world, {trial.load}, [](LinkView& link) {
      link.bytes_per_s = link.mean_bytes_per_s = std::numeric_limits<double>::infinity();
    })[0];
    EXPECT_LE(outcome.ttft_us, trial.load.spec.slo_us);
  });
}

TEST(SimInvariant, ALoadOnlyMissIsOneOfTheBasesAlone) {
  ForEachTrial(RecomputeCapability::kNone, [](const Trial& trial) {
    SimLoad tighter = trial.load;
    tighter.spec.slo_us -= 2000;
    if (!ClairvoyantLoadOnly(trial.world, Model(), tighter).feasible) return;
    EXPECT_FALSE(trial.Misses(Play(trial.world, {trial.load})[0]));
  });
}

TEST(SimInvariant, ALinkTwiceAsFastAsNeededMakesAllGoodWithoutTheEngine) {
  for (const RecomputeCapability capability :
       {RecomputeCapability::kNone, RecomputeCapability::kSuffix,
        RecomputeCapability::kBidirectional, RecomputeCapability::kAny}) {
    for (const Request& request : Requests(TestSeed(), 20)) {
      const SimLoad load = Load(request.tokens, request.slo_us, capability);
      const double time_s = 1e-6 * static_cast<double>(load.spec.slo_us - load.spec.reserve_us);
      const World world = Constant(2 * GoodBytes(load) / time_s / 0.9);
      const LoadOutcome outcome = Play(world, {Later(load)}, nullptr, {}, Measured(world))[0];
      EXPECT_EQ(outcome.gpu_us, 0);
      EXPECT_LE(outcome.loss, kLossStop + 1e-9);
      EXPECT_FALSE((Trial{world, load, ""}.Misses(outcome)));
    }
  }
}

TEST(SimInvariant, WasteIsLimited) {
  ForEachTrial(RecomputeCapability::kBidirectional, [](const Trial& trial) {
    std::vector<uint64_t> arrived(trial.load.spec.chunks.size());
    uint64_t window_bytes = 0;
    Watcher watcher;
    watcher.arrived = [&](size_t, TimeUs, uint32_t chunk, uint64_t bytes, bool) {
      arrived[chunk] += bytes;
    };
    watcher.decide = [&](TimeUs, const adapt::Tick& tick) {
      window_bytes = std::max(window_bytes,
                              adapt::LinkScheduler::WindowBytes(tick.link, adapt::AskClass::kBase));
    };
    const LoadOutcome outcome = Play(trial.world, {trial.load}, nullptr, watcher)[0];
    uint64_t computed = 0, largest = 0;
    for (size_t i = 0; i < arrived.size(); ++i) {
      const std::vector<uint64_t>& steps = trial.load.spec.chunks[i].step_bytes;
      largest = std::max(largest, *std::max_element(steps.begin(), steps.end()));
      if (outcome.steps[i] == LoadOutcome::kComputed) computed += arrived[i];
    }
    EXPECT_LE(outcome.wasted_bytes, computed + window_bytes + largest);
  });
}

// What is known beforehand leaves an engine that computes after the load no excuse.
TEST(SimInvariant, AConstantLinkAndEngineAreServedInTime) {
  using BoundOf = Bound (*)(const World&, const LoadModel&, const SimLoad&);
  const std::pair<RecomputeCapability, BoundOf> engines[] = {
      {RecomputeCapability::kSuffix, ClairvoyantSuffix},
      {RecomputeCapability::kAny, ClairvoyantAny}};
  for (const auto& [capability, bound_of] : engines) {
    for (const Request& request : Requests(TestSeed(), 200)) {
      const SimLoad load = Load(request.tokens, request.slo_us, capability);
      // The bases take from a fifth of the SLO to five times as long.
      const double share = std::pow(5, static_cast<double>(request.trace_us % 1000) / 500 - 1);
      const World world = Constant(1e6 * BaseBytes(load, 0) / (share * request.slo_us));
      SimLoad tighter = load;
      tighter.spec.slo_us -= kWindowUs + 2 * adapt::LoadPlanner::kTickUs;
      if (tighter.spec.slo_us <= 0 || !bound_of(world, Model(), tighter).feasible) continue;
      Memory memory = Measured(world);
      for (size_t i = 0; i < adapt::PrefillCost::kTrustedRatios; ++i) {
        Model().Calibrate(memory.cost);
      }
      const LoadOutcome outcome = Play(world, {Later(load)}, nullptr, {}, memory)[0];
      EXPECT_LE(outcome.ttft_us, load.spec.slo_us)
          << request.tokens << " tokens, bases take " << share << " of the SLO, engine "
          << static_cast<int>(capability);
    }
  }
}

TEST(SimInvariant, ADeadLinkCostsWhatIsLeftToCompute) {
  constexpr double kShare = 0.5;
  for (const Request& request : Requests(TestSeed(), 50)) {
    const SimLoad load = Load(request.tokens, request.slo_us, RecomputeCapability::kBidirectional);
    World world;
    // A rate at which the bases take the whole SLO, for half of it.
    const double rate = BaseBytes(load, 0) / (1e-6 * static_cast<double>(request.slo_us));
    std::vector<double> rates(1000, 0);
    rates[0] = rate;
    const TimeUs dead_us = request.slo_us / 2;
    world.link = RateTrace(rates, dead_us);
    world.gpu = ConstantRate(kShare);
    size_t computed = 0, first_loaded = load.work_us.size();
    Watcher watcher;
    watcher.computed = [&](size_t, TimeUs now_us, uint32_t) { computed += now_us <= dead_us; };
    watcher.decoded = [&](size_t, TimeUs, uint32_t chunk, int) {
      first_loaded = std::min<size_t>(first_loaded, chunk);
    };
    const LoadOutcome outcome = Play(world, {load}, nullptr, watcher)[0];
    const size_t n = load.work_us.size();
    const double rest_us = WorkUs(load, computed, first_loaded) + WorkUs(load, n - 1, n);
    const TimeUs detection_us = adapt::LinkEstimator::kMinStallUs + 3 * world.rtt_us;
    const TimeUs end_us = dead_us + detection_us + static_cast<TimeUs>(rest_us / kShare);
    EXPECT_LE(outcome.ttft_us, std::max(end_us + world.first_token_us, request.slo_us));
  }
}

TEST(SimInvariant, ALinkThatComesBackLosesNothing) {
  ForEachTrial(RecomputeCapability::kNone, [](Trial trial) {
    // Carries for a tenth of a second, then nothing for one to three.
    std::vector<double> rates(11 + trial.load.spec.slo_us % 20, 0);
    rates[0] = BaseBytes(trial.load, 0) / 3;
    trial.world.link = RateTrace(rates, kSecond / 10);
    const LoadOutcome outcome = Play(trial.world, {trial.load})[0];
    for (const int step : outcome.steps) EXPECT_GE(step, 0);
  });
}

TEST(SimInvariant, MoreBandwidthOrEngineMissesNoMore) {
  ForEachTrial(RecomputeCapability::kBidirectional, [](const Trial& trial) {
    const TimeUs plain_us = Play(trial.world, {trial.load})[0].ttft_us;
    World more = trial.world;
    more.link = trial.world.link.Scaled(1.5);
    EXPECT_LE(Play(more, {trial.load})[0].ttft_us, std::max(plain_us, trial.load.spec.slo_us));
    more = trial.world;
    more.gpu = trial.world.gpu.Scaled(1.5);
    EXPECT_LE(Play(more, {trial.load})[0].ttft_us, std::max(plain_us, trial.load.spec.slo_us));
  });
}

// When the bases of each load were all decoded.
std::vector<TimeUs> CoveredUs(const World& world, const std::vector<SimLoad>& loads,
                              const Memory& memory = Fresh()) {
  std::vector<TimeUs> covered_us(loads.size(), 0);
  std::vector<std::set<uint32_t>> decoded(loads.size());
  Watcher watcher;
  watcher.decoded = [&](size_t load, TimeUs now_us, uint32_t chunk, int) {
    if (decoded[load].insert(chunk).second) covered_us[load] = now_us;
  };
  Play(world, loads, nullptr, watcher, memory);
  return covered_us;
}

// When what was asked for just before is through as well: a window at the highest rate seen until
// then, though the link may carry less by now, or what is asked for while the link is unknown.
TimeUs BehindAWindow(const World& world, TimeUs alone_us) {
  double peak_rate = 0;
  for (TimeUs at_us = 0; at_us <= alone_us; at_us += world.link.step_us()) {
    peak_rate = std::max(peak_rate, world.link.RateAt(at_us));
  }
  const double window_bytes = peak_rate * static_cast<double>(kWindowUs + world.rtt_us) * 1e-6;
  const double ahead_bytes =
      std::max<double>(adapt::LinkScheduler::kProbeWindowBytes, window_bytes);
  return world.link.TimeOf(ahead_bytes, alone_us) + world.rtt_us;
}

TEST(SimInvariant, ALaterDeadlineDelaysNoEarlierOne) {
  ForEachTrial(RecomputeCapability::kNone, [](const Trial& trial) {
    SimLoad later = trial.load;
    later.spec.slo_us += 1;
    const TimeUs alone_us = CoveredUs(trial.world, {trial.load})[0];
    // The first in line is asked for first, whoever came first.
    const TimeUs shared_us = CoveredUs(trial.world, {later, trial.load})[1];
    EXPECT_LE(shared_us, BehindAWindow(trial.world, alone_us));
  });
}

TEST(SimInvariant, EqualLoadsEndAlike) {
  ForEachTrial(RecomputeCapability::kNone, [](const Trial& trial) {
    const std::vector<LoadOutcome> outcomes = Play(trial.world, {trial.load, trial.load});
    double level[2] = {};
    for (int i = 0; i < 2; ++i) {
      for (const int step : outcomes[i].steps) level[i] += step;
      level[i] /= static_cast<double>(outcomes[i].steps.size());
    }
    EXPECT_NEAR(level[0], level[1], 1);
  });
}

TEST(SimInvariant, AWeightIsAShareOfRefinement) {
  for (const Request& request : Requests(TestSeed(), 20)) {
    SimLoad light = Load(request.tokens, request.slo_us, RecomputeCapability::kNone);
    SimLoad heavy = light;
    heavy.spec.weight = 3;
    // The bases of both take half of the SLO.
    const World world = Constant(4e6 * BaseBytes(light, 0) / static_cast<double>(request.slo_us));
    const auto outcomes = Play(world, {Later(light), Later(heavy)}, nullptr, {}, Measured(world));
    EXPECT_GT(outcomes[0].loss, outcomes[1].loss);
  }
}

TEST(SimInvariant, AHopelessLoadDelaysNobody) {
  const World world = Constant(kGbit);
  const SimLoad hopeless = Later(Load(32768, kSecond / 10, RecomputeCapability::kNone));
  const SimLoad load = Later(Load(8192, kSecond, RecomputeCapability::kNone));
  const Memory memory = Measured(world);
  const TimeUs alone_us = CoveredUs(world, {load}, memory)[0];
  const std::vector<TimeUs> shared_us = CoveredUs(world, {hopeless, load}, memory);
  EXPECT_LE(shared_us[1], alone_us + kWindowUs + world.rtt_us);
  EXPECT_GT(shared_us[0], shared_us[1]);  // it gets what is left
}

TEST(SimInvariant, LoadsAtTheEdgeOfWhatIsPossibleEnd) {
  for (const RecomputeCapability capability :
       {RecomputeCapability::kNone, RecomputeCapability::kSuffix,
        RecomputeCapability::kBidirectional, RecomputeCapability::kAny}) {
    SCOPED_TRACE(static_cast<int>(capability));
    const World world = Constant(2 * kGbit);
    const auto outcome = [&](const SimLoad& load) { return Play(world, {load})[0]; };
    const SimLoad usual = Load(2048, kSecond, capability);
    for (const uint32_t tokens : {1u, 256u, 257u}) {  // one chunk, or a short one
      const LoadOutcome tiny = outcome(Load(tokens, kSecond, capability));
      EXPECT_EQ(tiny.steps.size(), tokens > 256 ? 2u : 1u);
      EXPECT_LE(tiny.loss, kLossStop + 1e-9);
    }
    SimLoad no_time = Load(2048, 0, capability);
    no_time.spec.limit_us = 0;
    EXPECT_EQ(outcome(no_time).received_bytes, 0u);
    const LoadOutcome much_time = outcome(Load(2048, 60 * kSecond, capability));
    EXPECT_LE(much_time.loss, kLossStop + 1e-9);
    EXPECT_LT(much_time.ttft_us, 2 * kSecond);  // it does not use up its SLO
    SimLoad one_level = usual;
    for (adapt::ChunkLadder& ladder : one_level.spec.chunks) ladder = {{1000000}, {0}, 256};
    EXPECT_LE(outcome(one_level).ttft_us, kSecond);
    SimLoad unknown_cost = usual;
    unknown_cost.spec.compute_us.clear();
    EXPECT_LE(outcome(unknown_cost).ttft_us, kSecond);
    SimLoad not_stored = usual;
    for (adapt::ChunkLadder& ladder : not_stored.spec.chunks) ladder = {{}, {}, 256};
    const LoadOutcome all_computed = outcome(not_stored);
    EXPECT_EQ(all_computed.steps, std::vector<int>(8, LoadOutcome::kComputed));
    EXPECT_LE(all_computed.ttft_us, WorkUs(usual, 0, 8) + 1000 + 20000);
    EXPECT_TRUE(outcome(Load(0, kSecond, capability)).steps.empty());
  }
}

}  // namespace
}  // namespace sluice::sim
