// Checks a profile while it streams in: its length and its digest.
//
// One thread at a time. Holds the state of the digest and nothing of the profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "codec/digest.h"
#include "server/store.h"

namespace sluice::server {

// NotFound, as every store says it.
absl::Status NoProfile(const Digest& id);

class ProfileVerifier {
 public:
  ProfileVerifier(const Digest& id, uint64_t total_bytes) : id_(id), total_bytes_(total_bytes) {}

  const Digest& id() const { return id_; }
  uint64_t total_bytes() const { return total_bytes_; }
  // The next bytes. InvalidArgument if there are more than were announced.
  absl::Status Append(std::span<const std::byte> bytes);
  // Once, after the last byte. InvalidArgument: bytes are missing, or it is another profile.
  absl::Status Finish();

 private:
  const Digest id_;
  const uint64_t total_bytes_;
  uint64_t received_bytes_ = 0;
  codec::Sha256Stream digest_;
};

}  // namespace sluice::server
