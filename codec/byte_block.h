// One coder for a run of bytes: byte planes of the lossless layer, and side information of lossy
// segments. Byte layout: FORMAT.md, section "Byte block".
//
// Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "codec/bytes.h"

namespace sluice::codec {

inline constexpr size_t kMaxByteBlockBytes = 1
                                             << 20;  // of what is coded; coded bytes are never more
inline constexpr size_t kByteBlockHeaderBytes = 4;

enum class ByteBlockMode : uint8_t {
  kRaw = 0,
  kConstant = 1,
  kRans = 2,
  kZstd = 3,
};

// Appends a block in the mode that makes it smallest; between equals the one that decodes faster.
// It has at most kByteBlockHeaderBytes + bytes.size() bytes. REQUIRES: bytes.size() <=
// kMaxByteBlockBytes.
void EncodeByteBlock(std::span<const std::byte> bytes, ByteWriter& writer);

// Reads one block, which must hold exactly out.size() bytes; the block does not say how many.
// `field` names it in errors. On error the contents of `out` are unspecified. REQUIRES: out.size()
// <= kMaxByteBlockBytes.
absl::Status DecodeByteBlock(std::string_view field, ByteReader& reader, std::span<std::byte> out);

}  // namespace sluice::codec
