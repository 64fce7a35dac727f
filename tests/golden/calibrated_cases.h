// The golden files of calibrated profiles and of chunks that were encoded with one: small inputs
// that must be accepted or refused for ever.
#pragma once

#include <string>
#include <vector>

#include "codec/encoder.h"
#include "codec/profile.h"
#include "tests/golden/golden_cases.h"

namespace sluice::codec {

// Two groups of a key and a value plane, one head of two dimensions, three levels, two classes in
// each layer. The same bytes on every machine.
Profile ExampleCalibratedProfile();
// Planes for it: they follow its covariance, with some tokens far out.
std::vector<std::string> ExampleCalibratedPlanes(uint32_t num_tokens);
// Those planes, encoded, lossless level included.
std::string ExampleCalibratedChunk();

// Writes the right checksum at the end of a profile that was changed.
void SealProfile(std::string& bytes);
// Makes the profile's id, the checksums of all segments that are there and that of the header
// right. False if there is no header that could be read then.
bool SealChunk(const Profile& profile, std::string& bytes);

// Of kind "profile", for Profile::Parse.
std::vector<GoldenCase> CalibratedProfileCases();
// Of kind "calibrated_chunk", for a decoder that has the example profile. Other machines may encode
// the example to other bytes, so these count as they are in the files.
std::vector<GoldenCase> CalibratedChunkCases();
// What decoding all levels of a chunk says.
absl::Status DecodeAllLevels(const Profile& profile, const std::string& container);

}  // namespace sluice::codec
