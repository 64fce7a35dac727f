#include "server/profile_verifier.h"

#include "absl/strings/str_cat.h"

namespace sluice::server {

absl::Status NoProfile(const Digest& id) {
  return absl::NotFoundError(absl::StrCat("profile ", codec::DigestHex(id), " is not stored here"));
}

absl::Status ProfileVerifier::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > total_bytes_ - received_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_bytes: more than the announced ", total_bytes_, " bytes were sent"));
  }
  received_bytes_ += bytes.size();
  digest_.Append(bytes);
  return absl::OkStatus();
}

absl::Status ProfileVerifier::Finish() {
  if (received_bytes_ != total_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "total_bytes: ", total_bytes_, " bytes announced, ", received_bytes_, " bytes sent"));
  }
  if (digest_.Finish() != id_) {
    return absl::InvalidArgumentError("profile_id: it is not the SHA-256 of the profile");
  }
  return absl::OkStatus();
}

}  // namespace sluice::server
