// Profiles for the tests of the client: small ones, large ones, and several of one geometry.
#pragma once

#include <cstring>
#include <string>

#include "codec/container.h"
#include "codec/profile.h"
#include "tests/client/shm_pool.h"

namespace sluice::client {

// The bytes of a profile of `geometry` that differs from the built-in one in the number of exact
// first tokens. They stand before the number of sections and the checksum.
inline std::string ProfileWithSinks(const codec::Geometry& geometry, uint32_t sink_tokens) {
  std::string bytes = codec::Profile::Builtin(geometry)->bytes();
  const size_t end = bytes.size() - sizeof(uint64_t);
  std::memcpy(bytes.data() + end - 2 * sizeof(uint32_t), &sink_tokens, sizeof(sink_tokens));
  const uint64_t checksum = codec::Checksum(std::as_bytes(std::span(bytes)).first(end));
  std::memcpy(bytes.data() + end, &checksum, sizeof(checksum));
  return bytes;
}

// A geometry whose profile has about `bytes` bytes: long rotary tables.
inline codec::Geometry LargeGeometry(size_t bytes) {
  constexpr uint32_t kPairs = codec::Geometry::kMaxRotaryPairs;
  const auto tables = static_cast<uint32_t>(bytes / (kPairs * sizeof(double)));
  codec::Geometry geometry = SmallGeometry(tables, 1, 2 * kPairs);
  for (uint32_t i = 0; i < tables; ++i) {
    geometry.planes[2 * i].rotary_table = static_cast<int32_t>(i);
    codec::RotaryTable& table = geometry.rotary_tables.emplace_back();
    table.inverse_frequencies.assign(kPairs, 1.0 / (i + 1));
  }
  return geometry;
}

inline codec::Digest IdOf(const std::string& profile) {
  return codec::Sha256(std::as_bytes(std::span(profile)));
}

}  // namespace sluice::client
