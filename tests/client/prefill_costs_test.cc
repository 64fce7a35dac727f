#include "client/prefill_costs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::client {
namespace {

namespace fs = std::filesystem;

class PrefillCostsTest : public testing::Test {
 protected:
  PrefillCostsTest() : folder_(fs::temp_directory_path() / absl::StrCat("prefill.", getpid())) {
    fs::create_directories(folder_);
  }
  ~PrefillCostsTest() override { fs::remove_all(folder_); }

  std::string Path() const { return (folder_ / "prefill.json").string(); }
  // A millisecond a token.
  static std::vector<PrefillCosts::Timing> Timings() {
    return {{1000, 0, 1000000}, {1000, 0, 1000000}, {1000, 0, 1000000}, {2000, 0, 2000000}};
  }

  const fs::path folder_;
};

TEST_F(PrefillCostsTest, ChunksAndTailAreForecast) {
  PrefillCosts costs("");
  EXPECT_TRUE(costs.Predict("m", 3, 256, 7).chunk_us.empty());
  costs.Report("m", Timings(), absl::UnixEpoch());
  const PrefillCosts::Forecast forecast = costs.Predict("m", 3, 256, 7);
  ASSERT_EQ(forecast.chunk_us.size(), 3u);
  for (adapt::TimeUs us : forecast.chunk_us) EXPECT_NEAR(us, 256000, 3000);
  EXPECT_NEAR(forecast.tail_us, 7000, 100);
  EXPECT_TRUE(costs.Predict("another", 3, 256, 7).chunk_us.empty());
}

TEST_F(PrefillCostsTest, ThePaceFollowsTheEngine) {
  PrefillCosts costs("");
  EXPECT_EQ(costs.Pace("m").scale, 1);
  costs.Report("m", Timings(), absl::UnixEpoch());
  for (int i = 0; i < 20; ++i) costs.Report("m", {{1000, 0, 3000000}}, absl::UnixEpoch());
  EXPECT_NEAR(costs.Pace("m").scale, 3, 0.1);
  EXPECT_GE(costs.Pace("m").high_scale, costs.Pace("m").scale);
  EXPECT_NEAR(costs.Predict("m", 1, 1000, 0).chunk_us[0], 1000000, 20000);
}

TEST_F(PrefillCostsTest, ARestartForgetsNothing) {
  {
    PrefillCosts costs(Path());
    costs.Report("m@\"1\"\n", Timings(), absl::UnixEpoch());
    EXPECT_TRUE(costs.Save().ok());
  }
  PrefillCosts costs(Path());
  EXPECT_EQ(costs.Predict("m@\"1\"\n", 2, 256, 0).chunk_us.size(), 2u);
}

TEST_F(PrefillCostsTest, AFileThatIsDamagedIsLeftOut) {
  for (const std::string text :
       {"", "{", "[]", "{\"version\":1}", "{\"version\":2,\"models\":{}}",
        "{\"version\":1,\"models\":{\"m\":{\"shapes\":[[1]],\"ratios\":[]}}}",
        "{\"version\":1,\"models\":{\"m\":{\"shapes\":[[0,0,-1]],\"ratios\":[1e999]}}}"}) {
    std::ofstream(Path()) << text;
    PrefillCosts costs(Path());
    EXPECT_TRUE(costs.Predict("m", 1, 256, 0).chunk_us.empty()) << text;
    costs.Report("m", Timings(), absl::UnixEpoch());  // and it can be written again
    EXPECT_TRUE(costs.Save().ok());
  }
}

TEST_F(PrefillCostsTest, AFileThatCannotBeWrittenIsNoHarm) {
  PrefillCosts costs((folder_ / "missing" / "prefill.json").string());
  costs.Report("m", Timings(), absl::UnixEpoch());
  EXPECT_FALSE(costs.Predict("m", 1, 256, 0).chunk_us.empty());
}

TEST_F(PrefillCostsTest, OnlySoManyModelsAreKept) {
  PrefillCosts costs("");
  for (size_t i = 0; i <= PrefillCosts::kMaxModels; ++i) {
    costs.Report(absl::StrCat("m", i), Timings(), absl::UnixEpoch());
  }
  EXPECT_TRUE(costs.Predict("m0", 1, 256, 0).chunk_us.empty());
  EXPECT_FALSE(costs.Predict("m1", 1, 256, 0).chunk_us.empty());
}

}  // namespace
}  // namespace sluice::client
