// Calibrated profiles that no calibration made: a random transform for any geometry.
#pragma once

#include <cstdint>

#include "codec/profile.h"
#include "tests/codec/test_chunks.h"

namespace sluice::codec {

// `model_layers` model layers a group, all channels have mean 0 and planes the step `step`. The
// basis is orthogonal but for a weight of every channel.
Profile MakeCalibratedProfile(const Geometry& geometry, uint32_t model_layers, double step,
                              uint32_t seed);

// The parts of such a profile, for tests that change them.
struct ProfileParts {
  Geometry geometry;
  std::vector<double> steps;
  std::vector<GroupSpec> groups;
  Calibration calibration;

  absl::StatusOr<Profile> Make() const {
    return Profile::Calibrated(geometry, steps, groups, Profile::kSinkTokens, calibration);
  }
};
ProfileParts MakeProfileParts(const Geometry& geometry, uint32_t model_layers, double step,
                              uint32_t seed);

// A chunk of a calibrated profile whose coefficients fall in variance as those of real models do:
// about 1.9 bits an element at the finest of three levels. Planes that are always exact are zero.
TestChunk MakeSpectralChunk(Profile profile, uint32_t start_token, uint32_t num_tokens,
                            uint32_t seed);
TestChunk MakeSpectralChunk(const Geometry& geometry, uint32_t model_layers, uint32_t start_token,
                            uint32_t num_tokens, uint32_t seed);

}  // namespace sluice::codec
