// Does a chunk need many more bits than its profile was measured at? Then the profile is stale, or
// of another model or kind of text. The quality is within its bound all the same.
//
// Pure functions, thread-safe.
#pragma once

#include <optional>

#include "codec/container.h"
#include "codec/profile.h"

namespace sluice::codec {

// A rate is unusual beyond this many times the profile's figure. Measured on SmolLM2: documents of
// the kinds of text that a profile was made from need 0.9 to 1.1 times it; other kinds 1.07 to 1.1
// times, another language 1.23 times; planes of other model layers or heads, as of another model,
// 2.2 times.
inline constexpr double kUnusualRate = 1.2;

struct ChunkRate {
  double bits = 0;   // an element, at the finest lossy level, all bytes counted
  double usual = 0;  // what calibration measured
  bool unusual = false;
};

// nullopt if there is nothing to compare: the profile has no figure, as built-in ones, or the chunk
// no lossy level. Bytes whose number does not depend on that of the tokens are not held against the
// profile: the header, sinks at their full size, a byte for each row's class and the state of one
// entropy coder a segment. REQUIRES: CheckCompatible.
std::optional<ChunkRate> RateOf(const Profile& profile, const ChunkHeader& header);

}  // namespace sluice::codec
