// SHA-256 digests: the names of namespaces, profiles and chunks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::codec {

using Digest = std::array<uint8_t, 32>;

Digest Sha256(std::span<const std::byte> bytes);

// The digest of bytes that come in pieces. One thread at a time.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  void Append(std::span<const std::byte> bytes);
  // Call once, after the last byte.
  Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 64 lower-case hexadecimal digits.
std::string DigestHex(const Digest& digest);
absl::StatusOr<Digest> DigestFromHex(std::string_view hex);
// `bytes` are the 32 raw bytes, as they travel on the wire; `what` names the field in the error.
absl::StatusOr<Digest> DigestFromBytes(std::string_view bytes, std::string_view what);
// The 32 raw bytes.
std::string_view DigestBytes(const Digest& digest);

}  // namespace sluice::codec
