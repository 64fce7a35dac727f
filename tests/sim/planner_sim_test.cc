// Invariants of whole loads over many links. Set SLUICE_TRACES to a folder of bandwidth traces to
// run them over those too.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/load_simulator.h"

namespace sluice::sim {
namespace {

using adapt::RecomputeCapability;

constexpr RecomputeCapability kCapabilities[] = {
    RecomputeCapability::kNone, RecomputeCapability::kSuffix, RecomputeCapability::kBidirectional,
    RecomputeCapability::kAny};

// Steps as the built-in profile gives them for 256 tokens of an 8B model, a third as large.
adapt::ChunkLadder Ladder() { return {{700000, 900000, 1000000}, {0.08, 0.02, 0.002}, 256}; }

SimConfig Config(size_t chunks, TimeUs slo_us, LinkModel link, uint32_t seed) {
  SimConfig config;
  config.spec.start_us = 5000000;
  config.spec.slo_us = slo_us;
  config.spec.reserve_us = std::min<TimeUs>(20000, slo_us / 4);
  config.spec.chunks.assign(chunks, Ladder());
  config.link = std::move(link);
  config.seed = seed;
  return config;
}

struct NamedLink {
  std::string name;
  LinkModel link;
};

std::vector<NamedLink> Links(uint32_t seed) {
  const TimeUs start = 5000000;
  std::vector<NamedLink> links;
  for (double rate : {1e6, 2e7, 1e8, 1e9}) {
    links.push_back({absl::StrCat("constant ", rate), ConstantLink(rate)});
    links.push_back({absl::StrCat("falls from ", rate), StepLink(rate, rate / 20, start + 100000)});
    links.push_back({absl::StrCat("rises to ", rate), StepLink(rate / 20, rate, start + 100000)});
    links.push_back({absl::StrCat("dies at ", rate), StepLink(rate, 0, start + 100000)});
    links.push_back({absl::StrCat("on and off ", rate), OnOffLink(rate, 130000, 170000)});
    links.push_back({absl::StrCat("random ", rate), RandomLink(seed, 0, 2 * rate, 30000)});
  }
  links.push_back({"dead", ConstantLink(0)});
  const char* folder = std::getenv("SLUICE_TRACES");
  if (folder == nullptr) return links;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    LinkModel link = entry.is_regular_file() ? TraceLink(entry.path(), 100000) : nullptr;
    if (link) {
      // Access links carry some Mbit/s; the same shape fifty times as fast is that of a busy
      // cluster.
      links.push_back({entry.path().filename(), [link](TimeUs now) { return 50 * link(now); }});
    }
  }
  return links;
}

TEST(PlannerSim, InvariantsHoldOnEveryLink) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    for (const NamedLink& link : Links(seed)) {
      for (RecomputeCapability capability : kCapabilities) {
        for (TimeUs slo : {0, 50000, 500000, 2000000}) {
          SimConfig config = Config(20, slo, link.link, seed);
          config.spec.capability = capability;
          config.spec.chunks[seed * 5] = {};  // one is not stored
          config.failure_rate = seed == 2 ? 0.2 : 0;
          config.link_lost_us = seed == 3 ? config.spec.start_us + 200000 : -1;
          config.computed_per_s = seed == 1 ? 10 : 0;
          config.spec.memory_bytes = seed == 2 ? 9000000 : 0;
          const SimResult result = Simulate(config);
          EXPECT_TRUE(result.broken.empty())
              << "seed " << seed << " link " << link.name << " slo " << slo << " capability "
              << static_cast<int>(capability) << ": " << absl::StrJoin(result.broken, "; ");
          EXPECT_EQ(result.steps[seed * 5], -1);
        }
      }
    }
  }
}

TEST(PlannerSim, ASuffixLoadLeavesNoHole) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    for (const NamedLink& link : Links(seed)) {
      SimConfig config = Config(20, 500000, link.link, seed);
      config.spec.capability = RecomputeCapability::kSuffix;
      config.failure_rate = 0.3;
      const SimResult result = Simulate(config);
      bool cut = false;
      for (int step : result.steps) {
        EXPECT_FALSE(cut && step >= 0) << "seed " << seed << " link " << link.name;
        cut = cut || step < 0;
      }
    }
  }
}

// A load misses only if its bases alone, sent back to back, would not have been there in time, but
// for the time of one window, one unit and their decode.
TEST(PlannerSim, MissesOnlyWhatCannotArrive) {
  int loads = 0, feasible = 0, missed = 0;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    for (const NamedLink& link : Links(seed)) {
      for (size_t chunks : {1, 8, 40}) {
        for (TimeUs slo : {250000, 500000, 1000000, 2000000}) {
          const SimConfig config = Config(chunks, slo, link.link, seed);
          const TimeUs slack_us = 60000;
          ++loads;
          if (BasesArriveUs(config, slo - config.spec.reserve_us - slack_us) < 0) continue;
          ++feasible;
          const SimResult result = Simulate(config);
          missed += result.missing() > 0;
          EXPECT_EQ(result.missing(), 0)
              << "seed " << seed << " link " << link.name << " chunks " << chunks << " slo " << slo;
        }
      }
    }
  }
  std::cout << loads << " loads, " << feasible << " feasible, " << missed << " missed\n";
  EXPECT_GT(feasible, loads / 10);
}

TEST(PlannerSim, AFastLinkReachesTheLastStepLongBeforeTheSlo) {
  const SimResult result = Simulate(Config(40, 2000000, ConstantLink(1e9), 1));
  for (int step : result.steps) EXPECT_EQ(step, 2);
  EXPECT_LT(result.finished_us, 250000);  // 104 MB
}

TEST(PlannerSim, NoByteIsAskedForTwiceWithoutFailures) {
  const SimConfig config = Config(40, 2000000, ConstantLink(5e7), 1);
  uint64_t all_bytes = 0;
  for (const adapt::ChunkLadder& ladder : config.spec.chunks) {
    for (uint64_t bytes : ladder.step_bytes) all_bytes += bytes;
  }
  EXPECT_LE(Simulate(config).received_bytes, all_bytes);
}

TEST(PlannerSim, SameInputsSameDecisions) {
  for (const NamedLink& link : Links(7)) {
    SimConfig config = Config(20, 500000, link.link, 7);
    config.failure_rate = 0.1;
    EXPECT_EQ(Simulate(config).log, Simulate(config).log) << link.name;
  }
}

TEST(PlannerSim, ALoadSurvivesASilence) {
  const TimeUs start = 5000000;
  const LinkModel link = [=](TimeUs now) {
    return now > start + 100000 && now < start + 500000 ? 0.0 : 1e8;
  };
  const SimResult result = Simulate(Config(40, 2000000, link, 1));
  EXPECT_EQ(result.missing(), 0);
  EXPECT_TRUE(result.broken.empty()) << absl::StrJoin(result.broken, "; ");
  for (int step : result.steps) EXPECT_GE(step, 1);
}

}  // namespace
}  // namespace sluice::sim
