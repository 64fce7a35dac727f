// The golden chunks of lossy levels: small ones that every later decoder must decode to the same
// bytes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/codec/test_chunks.h"

namespace sluice::codec {

// Files tests/golden/lossy/<name>.profile and <name>.chunk were made from these.
std::vector<std::pair<std::string, TestChunk>> LossyGoldenChunks();

// A line "<name> <level> <SHA-256 of the decoded planes>" for each level of a container.
std::string DecodedDigests(const std::string& name, const Profile& profile,
                           const std::string& container);

// Of calibrated profiles, with the same files and <name>.decoded: the planes of every level, one
// after the other.
std::vector<std::pair<std::string, TestChunk>> CalibratedGoldenChunks();
// The planes of all lossy levels as they are decoded.
absl::StatusOr<std::vector<std::string>> DecodedLevels(const Profile& profile,
                                                       const std::string& container);
// A line "<name> <group> <level> <SHA-256 of the integer values>" for each group and lossy level.
std::string ValueDigests(const std::string& name, const Profile& profile,
                         const std::string& container);

}  // namespace sluice::codec
