// Random loads on random links: whatever happens, the rules that the referee knows are kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/referee.h"
#include "tests/sim/seed.h"

namespace sluice::sim {
namespace {

using adapt::RecomputeCapability;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRequests = 1000;
#else
constexpr int kRequests = 12000;
#endif

constexpr TimeUs kSecond = 1000000;
constexpr double kMegabit = 1e6 / 8;  // bytes

// Loads that share a link.
struct Scenario {
  World world;
  std::vector<SimLoad> loads;
  Referee::Distortion distort;
  std::string description;
};

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}

  TimeUs Whole(TimeUs low, TimeUs high) {
    return std::uniform_int_distribution<TimeUs>(low, high)(random_);
  }
  double Real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  // Every order of magnitude as likely.
  double Scale(double low, double high) { return low * std::pow(high / low, Real(0, 1)); }
  bool Happens(double probability) { return Real(0, 1) < probability; }
  template <typename T>
  T OneOf(std::initializer_list<T> choices) {
    return *(choices.begin() + Whole(0, static_cast<TimeUs>(choices.size()) - 1));
  }
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
};

RateTrace RandomLink(Chance& chance) {
  const double rate = chance.Scale(kMegabit, 20000 * kMegabit);
  switch (chance.Whole(0, 4)) {
    case 0:
      return ConstantRate(rate);
    case 1:
      return UniformRate(chance.random(), 0, 2 * rate, chance.Whole(1000, kSecond), 100);
    case 2:
      return OnOffRate(chance.random(), {rate, 0, 1000, kSecond, 1000, 2 * kSecond}, 20 * kSecond);
    case 3:
      return ChoiceRate(chance.random(), {0, rate, 10 * rate}, 0.9, chance.Whole(1000, 100000),
                        500);
    default:
      return ConstantRate(0);
  }
}

RateTrace RandomGpu(Chance& chance) {
  if (chance.Happens(0.3)) return ConstantRate(1);
  if (chance.Happens(0.1)) return ConstantRate(0.01);
  return ChoiceRate(chance.random(), {1, .8, .5, .3, .1}, .7, 50000, 200);
}

adapt::ChunkLadder RandomLadder(Chance& chance, size_t steps, uint32_t tokens) {
  adapt::ChunkLadder ladder;
  ladder.num_tokens = tokens;
  double loss = 1;
  for (size_t step = 0; step < steps; ++step) {
    loss *= chance.Real(0, 1);
    ladder.step_bytes.push_back(static_cast<uint64_t>(chance.Scale(1, 4e6)));
    ladder.step_loss.push_back(loss);
  }
  return ladder;
}

SimLoad RandomLoad(Chance& chance, TimeUs start_us) {
  SimLoad load;
  adapt::LoadSpec& spec = load.spec;
  spec.start_us = start_us;
  spec.slo_us = chance.Happens(0.05) ? 0 : static_cast<TimeUs>(chance.Scale(20000, 2e6));
  spec.reserve_us = std::min<TimeUs>(chance.Whole(0, 40000), spec.slo_us);
  spec.limit_us = spec.slo_us + (chance.Happens(0.5) ? 0 : chance.Whole(0, kSecond));
  spec.capability = chance.OneOf({RecomputeCapability::kNone, RecomputeCapability::kSuffix,
                                  RecomputeCapability::kBidirectional, RecomputeCapability::kAny});
  spec.loss_stop = chance.OneOf({0.0, 0.0, 0.01, 0.3, 1.0});
  spec.weight = chance.OneOf({0.0, 1.0, 1.0, 5.0});
  load.unit_tokens = 256;
  const bool costs_known = chance.Happens(0.8);
  const bool gaps = chance.Happens(0.1);
  const TimeUs chunks = static_cast<TimeUs>(chance.Scale(1, 60));
  const TimeUs work_us = static_cast<TimeUs>(chance.Scale(100, 50000));
  const size_t steps = static_cast<size_t>(chance.Whole(1, 7));
  for (TimeUs i = 0; i < chunks; ++i) {
    const uint32_t tokens = i + 1 < chunks ? 256 : static_cast<uint32_t>(chance.Whole(1, 256));
    const bool stored = !gaps || chance.Happens(0.9);
    spec.chunks.push_back(stored ? RandomLadder(chance, steps, tokens) : adapt::ChunkLadder{});
    load.decode_us.push_back(chance.Whole(0, 5000));
    load.work_us.push_back(1 + work_us + i * work_us / 50);
    const double error = chance.Real(0.5, 1.5);
    if (costs_known) {
      spec.compute_us.push_back(
          static_cast<TimeUs>(error * static_cast<double>(load.work_us.back())));
    }
  }
  if (chance.Happens(0.1)) spec.memory_bytes = static_cast<uint64_t>(chance.Scale(1e6, 1e8));
  return load;
}

Referee::Distortion RandomDistortion(Chance& chance, std::string& description) {
  switch (chance.Whole(0, 5)) {
    case 0:
      description += ", no estimate";
      return [](adapt::LinkView& link) { link.bytes_per_s = link.mean_bytes_per_s = 0; };
    case 1:
      description += ", an infinite estimate";
      return [](adapt::LinkView& link) {
        link.bytes_per_s = link.mean_bytes_per_s = std::numeric_limits<double>::infinity();
      };
    case 2:
      description += ", a random estimate";
      return [noise = Chance(chance.random()())](adapt::LinkView& link) mutable {
        link.bytes_per_s *= noise.Scale(0.01, 100);
        link.mean_bytes_per_s *= noise.Scale(0.01, 100);
        link.stalled = link.stalled != noise.Happens(0.05);
      };
    default:
      return nullptr;
  }
}

Scenario RandomScenario(uint64_t seed) {
  Chance chance(seed);
  Scenario scenario;
  scenario.description = absl::StrCat("seed ", seed);
  World& world = scenario.world;
  world.link = RandomLink(chance);
  world.gpu = RandomGpu(chance);
  world.rtt_us = chance.OneOf<TimeUs>({0, 100, 1000, 30000, 200000});
  world.failure_rate = chance.OneOf({0.0, 0.0, 0.02, 0.3, 1.0});
  if (chance.Happens(0.1)) world.link_lost_us = chance.Whole(0, 2 * kSecond);
  world.seed = seed;
  TimeUs start_us = 0;
  for (TimeUs count = chance.OneOf<TimeUs>({1, 1, 2, 3, 8}); count > 0; --count) {
    scenario.loads.push_back(RandomLoad(chance, start_us));
    if (chance.Happens(0.7)) start_us += chance.Whole(0, 200000);
  }
  scenario.distort = RandomDistortion(chance, scenario.description);
  return scenario;
}

// Returns the digest of what was done; faults fail the test.
uint64_t Play(const Scenario& scenario) {
  Referee referee(scenario.loads, scenario.distort);
  Memory memory;
  referee.CheckOutcomes(Simulate(scenario.world, scenario.loads, referee, memory));
  EXPECT_EQ(referee.faults().size(), 0u)
      << scenario.description << "\n  " << absl::StrJoin(referee.faults(), "\n  ");
  return referee.digest();
}

TEST(SimProperty, NoRuleIsBroken) {
  int requests = 0;
  for (uint64_t seed = TestSeed(); requests < kRequests && !HasFailure(); ++seed) {
    const Scenario scenario = RandomScenario(seed);
    Play(scenario);
    requests += static_cast<int>(scenario.loads.size());
  }
}

TEST(SimInvariant, TheSameInputsGiveTheSameActions) {
  for (uint64_t seed = TestSeed(); seed < TestSeed() + 100; ++seed) {
    const uint64_t first = Play(RandomScenario(seed));
    EXPECT_EQ(Play(RandomScenario(seed)), first) << seed;
  }
}

}  // namespace
}  // namespace sluice::sim
