// Decodes one group of a chunk at one level.
//
// Functions are thread-safe: groups can be decoded on several threads. Bytes are hostile: whatever
// they are, the result is the encoder's values or an error that names the field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "codec/aligned_buffer.h"
#include "codec/container.h"
#include "codec/lossy_segment.h"
#include "codec/plane_runs.h"
#include "codec/profile.h"

namespace sluice::codec {

// Can this profile decode chunks with this header? (Ids and group counts agree, versions are
// known.)
absl::Status CheckCompatible(const Profile& profile, const ChunkHeader& header);

// Does now what the first decode of each group would do first: packs the transforms of a calibrated
// profile for this machine, some 2 ms per MB. Whoever decodes against a time limit calls it before
// the time runs.
absl::Status PrepareDecode(const Profile& profile);

// A group on its way from bytes to planes: everything that can be wrong with the bytes is found by
// Read, before a single element is written. One thread at a time; Read again to reuse its memory.
class GroupDecoder {
 public:
  // `segments` are those of `group` in the layers that `level` needs: layers 0 .. level for a lossy
  // level, the lossless layer alone for kLossless. Each is verified against the header's checksum
  // first. They are not used after the return; `profile` must outlive the decoder.
  // REQUIRES: CheckCompatible.
  absl::Status Read(const Profile& profile, const ChunkHeader& header, size_t group, Level level,
                    std::span<const std::span<const std::byte>> segments);

  // Writes the group's planes in their element types; `planes[i]` is plane first_plane + i and has
  // the chunk's tokens. Fails for want of memory alone, and then nothing is written.
  // REQUIRES: Read, without an error.
  absl::Status Write(std::span<const PlaneRuns> planes) const;

 private:
  SegmentContext context_;
  Level level_ = 0;
  GroupCode code_;       // of lossy levels
  AlignedBuffer exact_;  // planes without gaps, one after the other, as far as they are exact
  std::vector<std::span<std::byte>> exact_planes_;
};

// Both steps at once. `planes[i]` receives plane first_plane + i, [num_heads, num_tokens, head_dim]
// without gaps; on error the contents are unspecified.
absl::Status DecodeGroup(const Profile& profile, const ChunkHeader& header, size_t group,
                         Level level, std::span<const std::span<const std::byte>> segments,
                         std::span<const std::span<std::byte>> planes);

}  // namespace sluice::codec
