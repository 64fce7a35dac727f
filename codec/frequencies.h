// Scales a histogram to the integer frequencies of a rANS table. Pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::codec {

// Frequencies that sum to kProbScale and cost the least bits for `counts`, as near as a greedy
// choice gets: 0 for a count of 0, else 1 or more. The same counts give the same result on every
// machine. REQUIRES: 1 .. kProbScale counts are not 0; their sum is below 2^48.
std::vector<uint16_t> ScaleToFrequencies(std::span<const uint64_t> counts);

}  // namespace sluice::codec
