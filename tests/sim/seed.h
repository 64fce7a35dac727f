// The seed of random tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace sluice::sim {

// Printed when first needed; SLUICE_TEST_SEED repeats a run.
inline uint64_t TestSeed() {
  static const uint64_t seed = [] {
    const char* text = std::getenv("SLUICE_TEST_SEED");
    const uint64_t value =
        text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
    std::printf("SLUICE_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

}  // namespace sluice::sim
