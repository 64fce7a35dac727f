// Profiles to and from a storage server, frame by frame.
//
// Pure functions over a stub; they end at the deadline, and within 10 ms once `cancelled` (may be
// empty) says true. What a server says is checked. `what` names the call in errors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/remote_store.h"
#include "sluice/v1/store.grpc.pb.h"

namespace sluice::client {

// As RemoteStore::GetProfile.
absl::StatusOr<std::string> ReceiveProfile(v1::Store::Stub& stub, const codec::Digest& id,
                                           uint64_t max_bytes, const std::string& what,
                                           absl::Time deadline,
                                           const std::function<bool()>& cancelled);
// Returns the bytes sent; 0 if the server had the profile.
absl::StatusOr<uint64_t> SendProfile(v1::Store::Stub& stub, const codec::Digest& id,
                                     std::string_view bytes, size_t frame_bytes,
                                     const std::string& what, absl::Time deadline,
                                     const std::function<bool()>& cancelled);

}  // namespace sluice::client
