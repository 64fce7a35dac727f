#include "client/load_spec.h"

#include <gtest/gtest.h>

namespace sluice::client {
namespace {

adapt::TimeUs ReserveUs(adapt::TimeUs slo_us, adapt::TimeUs tail_us) {
  LoadTerms terms;
  terms.slo_us = slo_us;
  terms.limit_us = slo_us;
  LoadOptions options;
  options.tail_us = tail_us;
  Loader::Config config;
  config.reserve = absl::Milliseconds(20);
  return MakeSpec(terms, config, options, /*compute_scale=*/1).reserve_us;
}

TEST(LoadSpecTest, ReserveHasWhatIsComputedAfterTheLoad) {
  EXPECT_EQ(ReserveUs(1'000'000, 0), 20'000);
  EXPECT_EQ(ReserveUs(1'000'000, 300'000), 320'000);
  EXPECT_EQ(ReserveUs(40'000, 0), 10'000);
}

TEST(LoadSpecTest, LoadsHalfOfAnSloThatIsLostAnyway) {
  EXPECT_EQ(ReserveUs(1'000'000, 870'000), 890'000);
  EXPECT_EQ(ReserveUs(1'000'000, 890'000), 500'000);
  EXPECT_EQ(ReserveUs(1'000'000, 30'000'000), 500'000);
  EXPECT_EQ(ReserveUs(0, 30'000'000), 0);
}

}  // namespace
}  // namespace sluice::client
