// Decodes one group of a chunk at one level.
//
// Thread-safe: no state besides its arguments, so groups can be decoded on several threads. Bytes
// are hostile: whatever they are, the result is the encoder's values or an error that names the
// field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "codec/container.h"
#include "codec/profile.h"

namespace sluice::codec {

// Can this profile decode chunks with this header? (Ids and group counts agree, versions are
// known.)
absl::Status CheckCompatible(const Profile& profile, const ChunkHeader& header);

// `segments` are those of `group` in the layers that `level` needs: layers 0 .. level for a lossy
// level, the lossless layer alone for kLossless. Each is verified against the header's checksum
// first. `planes[i]` receives plane first_plane + i, [num_heads, num_tokens, head_dim] without
// gaps, in its element type; on error the contents are unspecified. REQUIRES: CheckCompatible.
absl::Status DecodeGroup(const Profile& profile, const ChunkHeader& header, size_t group,
                         Level level, std::span<const std::span<const std::byte>> segments,
                         std::span<const std::span<std::byte>> planes);

}  // namespace sluice::codec
