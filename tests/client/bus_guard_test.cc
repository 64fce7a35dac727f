#include "client/bus_guard.h"

#include <gtest/gtest.h>

#include "tests/client/shm_pool.h"

namespace sluice::client {
namespace {

TEST(BusGuardTest, AccessBehindTheEndBecomesZeroPages) {
  constexpr size_t kBytes = 1 << 16;
  ShmPool shm(kBytes);
  shm.data()[kBytes - 1] = std::byte{7};
  ASSERT_TRUE(shm.Truncate(0));
  std::atomic<bool> lost = false;
  {
    const BusGuard guard(shm.data(), kBytes, &lost);
    volatile std::byte* last = shm.data() + kBytes - 1;
    EXPECT_TRUE(*last == std::byte{0});
    *last = std::byte{9};
    EXPECT_TRUE(*last == std::byte{9});
  }
  EXPECT_TRUE(lost);
}

TEST(BusGuardDeathTest, OtherFaultsStillEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr size_t kBytes = 1 << 16;
  EXPECT_DEATH(
      {
        ShmPool guarded(kBytes);
        ShmPool other(kBytes);
        std::atomic<bool> lost = false;
        const BusGuard guard(guarded.data(), kBytes, &lost);
        if (other.Truncate(0)) *const_cast<volatile std::byte*>(other.data()) = std::byte{1};
      },
      "");
}

}  // namespace
}  // namespace sluice::client
