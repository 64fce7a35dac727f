// From a `.sluice` file to planes in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/context_planes.h"
#include "codec/container.h"
#include "codec/context_file.h"
#include "codec/profile.h"

namespace sluice::cli {

// Reads and parses. InvalidArgument for a file of another kind, DataLoss for a damaged one.
absl::StatusOr<codec::ContextFile> ReadContextFile(const std::string& path);
bool IsContextFile(const std::string& path);
// Do the bytes begin as a profile does?
bool IsProfile(std::string_view bytes);

// Tokens in all chunks. DataLoss unless the chunks follow each other from token 0.
absl::StatusOr<uint32_t> CountTokens(const std::vector<codec::ChunkHeader>& headers);
// Does the chunk belong to this file? DataLoss, which does not name the chunk, if its header names
// another namespace, key or profile.
absl::Status CheckChunk(const codec::ContextFile& file, size_t index,
                        const codec::ChunkHeader& header);

// The level that is decoded when none is named: the finest lossy one, else lossless.
codec::Level DefaultLevel(const codec::Profile& profile);

// Decodes all chunks at one level, on several threads. NotFound if a chunk does not have the level.
absl::StatusOr<client::ContextPlanes> DecodeContext(const codec::ContextFile& file,
                                                    const codec::Profile& profile,
                                                    codec::Level level);

}  // namespace sluice::cli
