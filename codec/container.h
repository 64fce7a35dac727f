// The container of one encoded chunk: a header, then the segments, layer by layer and group by
// group, so that a level is a prefix of the bytes. Byte layout: FORMAT.md, section "Container".
//
// Pure functions on bytes; nothing here knows what is inside a segment. This is all that a storage
// server needs of the codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/digest.h"
#include "codec/profile.h"

namespace sluice::codec {

inline constexpr uint16_t kContainerVersion = 1;
inline constexpr size_t kMaxHeaderBytes = 1 << 20;
inline constexpr size_t kMaxSegmentBytes = size_t{1} << 30;
// Bytes that suffice to learn a header's length (PeekHeaderBytes).
inline constexpr size_t kHeaderPrefixBytes = 16;

// XXH3-64, the checksum of segments, headers and frames.
uint64_t Checksum(std::span<const std::byte> bytes);

struct SegmentEntry {
  uint32_t bytes = 0;
  uint64_t checksum = 0;
};

// One bitstream layer of a chunk.
struct LayerEntry {
  Level level = 0;                     // the level that it completes
  float mean_error = 0;                // over the chunk, in standard deviations of each plane
  float max_error = 0;                 // the largest, in the same unit
  std::vector<SegmentEntry> segments;  // one per group

  uint64_t bytes() const;
};

struct ChunkHeader {
  Digest chunk_key = {};
  Digest namespace_digest = {};
  Digest profile_id = {};
  uint32_t start_token = 0;
  uint32_t num_tokens = 0;
  std::vector<LayerEntry> layers;  // lossy levels in order, then lossless if present; at least one
  uint32_t header_bytes = 0;       // set by ParseChunkHeader; HeaderBytes() of this header's shape

  static constexpr size_t HeaderBytes(size_t num_layers, size_t num_groups) {
    return 128 + num_layers * (12 + 12 * num_groups) + 8;
  }

  size_t num_groups() const { return layers.front().segments.size(); }
  uint64_t total_bytes() const;
  // Where a whole layer / one segment begins in the container. REQUIRES: header_bytes is set.
  uint64_t LayerOffset(size_t layer) const;
  uint64_t SegmentOffset(size_t layer, size_t group) const;
  // Index into `layers`, or -1.
  int LayerOfLevel(Level level) const;
};

// Total length of the header, from the container's first kHeaderPrefixBytes.
absl::StatusOr<uint32_t> PeekHeaderBytes(std::span<const std::byte> prefix);
// `bytes` must begin with a whole header; what follows is not looked at. Checks the header's
// checksum and every limit; the error names the field.
absl::StatusOr<ChunkHeader> ParseChunkHeader(std::span<const std::byte> bytes);
// Writes the header's length itself. REQUIRES: the header is one that ParseChunkHeader accepts.
std::string SerializeChunkHeader(const ChunkHeader& header);

// Is `segment` the one that the header promises?
absl::Status VerifySegment(const ChunkHeader& header, size_t layer, size_t group,
                           std::span<const std::byte> segment);
// Parses and verifies a whole container: header, every segment, exact length.
absl::StatusOr<ChunkHeader> VerifyContainer(std::span<const std::byte> container);

}  // namespace sluice::codec
