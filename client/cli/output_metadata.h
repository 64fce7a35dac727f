// Metadata of files that decode and fetch write.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "client/context_planes.h"
#include "codec/chunk_key.h"
#include "codec/profile.h"

namespace sluice::cli {

using Metadata = std::map<std::string, std::string>;

// Adds to the metadata of the original (may be empty) what it lacks: identity and rotary embedding.
void CompleteMetadata(const codec::NamespaceDescriptor& descriptor, const codec::Geometry& geometry,
                      Metadata& metadata);

// Describes which tokens of a context a file holds: `token_ids` of the ranges alone,
// `sluice_token_ranges`, and `sluice_missing_chunks`.
void DescribeTokens(std::span<const uint32_t> token_ids, std::span<const client::TokenRange> ranges,
                    std::span<const uint32_t> missing_chunks, Metadata& metadata);

// `sluice_level`: a JSON list with the level of each loaded chunk.
void DescribeLevels(std::span<const codec::Level> levels, Metadata& metadata);

}  // namespace sluice::cli
