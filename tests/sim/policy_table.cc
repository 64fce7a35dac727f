// Prints how the policies fare over all links, as in README.md:
//   policy_table [--requests N] [--seed N]
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/sim/comparison.h"

namespace sluice::sim {
namespace {

using Scores = std::map<std::string, Score>;

void PrintAll(const std::vector<Policy>& policies, const std::vector<Scores>& scores) {
  std::printf("| policy | misses %% | avoidable %% | loss e-3 | of bound | sent MB | GPU s |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < policies.size(); ++i) {
    const Score& score = scores[i].at("");
    std::printf("| %s | %.1f | %.2f | %.2f | %.2f |", policies[i].name.c_str(),
                score.misses_percent(), score.avoidable_percent(), 1000 * score.loss(),
                score.loss_ratio());
    if (policies[i].driver == nullptr) {
      std::printf(" | |\n");
    } else {
      std::printf(" %.0f | %.2f |\n", score.sent_mb(), score.gpu_s());
    }
  }
}

void PrintSets(const std::vector<Policy>& policies, const std::vector<Scores>& scores) {
  std::string rule = "|---|";
  std::printf("\n| avoidable %% |");
  for (const auto& [set, score] : scores.front()) {
    if (set.empty()) continue;
    std::printf(" %s |", set.c_str());
    rule += "---|";
  }
  std::printf("\n%s\n", rule.c_str());
  for (size_t i = 0; i < policies.size(); ++i) {
    std::printf("| %s |", policies[i].name.c_str());
    for (const auto& [set, score] : scores[i]) {
      if (!set.empty()) std::printf(" %.2f |", score.avoidable_percent());
    }
    std::printf("\n");
  }
}

int Main(int argc, char** argv) {
  int requests = 120;
  uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--requests") == 0) requests = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  const std::vector<NamedLink> links = AllLinks(seed);
  std::printf("%zu links, %d requests each, seed %llu\n\n", links.size(), requests,
              static_cast<unsigned long long>(seed));
  const Comparison comparison(links, requests, seed);
  const std::vector<Policy> policies = AllPolicies();
  std::vector<Scores> scores;
  for (const Policy& policy : policies) scores.push_back(comparison.Run(policy));
  PrintAll(policies, scores);
  PrintSets(policies, scores);
  return 0;
}

}  // namespace
}  // namespace sluice::sim

int main(int argc, char** argv) { return sluice::sim::Main(argc, argv); }
