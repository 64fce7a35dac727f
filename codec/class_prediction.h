// The class that a row is expected to have, from which segments code the difference.
//
// Pure functions, thread-safe. FORMAT.md, section "Lossy segments".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/profile.h"

namespace sluice::codec {

// Of layer 0. Empty for a built-in profile, whose rows are expected to have the class of the row
// before.
std::span<const uint8_t> PredictBaseClasses(const Profile& profile, size_t group);

// Of layer `layer` > 0, for rows that have `parents` in the layer before.
std::vector<uint8_t> PredictRefinementClasses(const Profile& profile, size_t group, int layer,
                                              std::span<const uint8_t> parents);

}  // namespace sluice::codec
