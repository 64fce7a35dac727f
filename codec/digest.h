// SHA-256 digests: the names of namespaces, profiles and chunks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::codec {

using Digest = std::array<uint8_t, 32>;

Digest Sha256(std::span<const std::byte> bytes);
// 64 lower-case hexadecimal digits.
std::string DigestHex(const Digest& digest);
absl::StatusOr<Digest> DigestFromHex(std::string_view hex);
// `bytes` are the 32 raw bytes, as they travel on the wire; `what` names the field in the error.
absl::StatusOr<Digest> DigestFromBytes(std::string_view bytes, std::string_view what);
// The 32 raw bytes.
std::string_view DigestBytes(const Digest& digest);

}  // namespace sluice::codec
