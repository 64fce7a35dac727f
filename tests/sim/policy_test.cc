// What is promised of the policies, on few requests; policy_table tells it of many.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/sim/comparison.h"

namespace sluice::sim {
namespace {

constexpr int kRequestsPerLink = 100;
constexpr uint64_t kSeed = 1;

class SimPolicies : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the figures need more requests than there is time for";
#endif
  }
  // Over all links.
  Score ScoreOf(const std::string& name) { return comparison_.Run(PolicyNamed(name)).at(""); }

 private:
  const Comparison comparison_{AllLinks(kSeed), kRequestsPerLink, kSeed};
};

TEST_F(SimPolicies, BothEndsMissNothingAndLoseLittle) {
  const Score score = ScoreOf("sluice, both ends");
  EXPECT_LE(score.avoidable_percent(), 0.1);
  EXPECT_LE(score.loss_ratio(), 1.35);
}

TEST_F(SimPolicies, LoadingAloneMissesWhatTheBasesAloneMiss) {
  EXPECT_LE(ScoreOf("sluice, load only").avoidable_percent(),
            ScoreOf("clairvoyant, load only").avoidable_percent() + 0.2);
}

TEST_F(SimPolicies, ComputingAfterwardsMissesLittleMoreThanItMust) {
  for (const char* engine : {"one cut", "any chunk"}) {
    EXPECT_LE(ScoreOf(absl::StrCat("sluice, ", engine)).avoidable_percent(),
              ScoreOf(absl::StrCat("clairvoyant, ", engine)).avoidable_percent() + 1)
        << engine;
  }
}

TEST_F(SimPolicies, OtherRulesMissMore) {
  for (const char* other : {"CacheGen, paper", "CacheGen, code", "MPC, low quantile",
                            "Cake, 16 bits, both ends", "fixed level, 1/10"}) {
    EXPECT_GE(ScoreOf(other).avoidable_percent(), 10) << other;
  }
}

}  // namespace
}  // namespace sluice::sim
