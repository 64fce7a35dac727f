// A calibration as the last part of a profile's bytes. FORMAT.md, section "Calibrated profiles".
//
// Pure functions, thread-safe. Used by profile.cc only.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "codec/bytes.h"
#include "codec/calibration.h"

namespace sluice::codec {

// Bases begin at multiples of this from the beginning of the profile.
inline constexpr size_t kBasisAlignment = 64;

// Appends all of `calibration`. REQUIRES: it is valid.
void WriteCalibration(const Calibration& calibration, ByteWriter& writer);

// Reads a calibration of `channels.size()` groups, but leaves the bases where they are:
// `basis_offsets` tells where in the reader's bytes. Checks that the bytes are there before it
// allocates, tables and bases in full, and the rest as ValidateCalibration does.
absl::Status ReadCalibration(int num_levels, const std::vector<size_t>& channels,
                             ByteReader& reader, Calibration& calibration,
                             std::vector<size_t>& basis_offsets);

}  // namespace sluice::codec
