// absl::Status <-> grpc::Status, for client/. The codes are the same numbers by definition.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace sluice::client {

// Longest message taken from a peer, bytes; the rest is cut.
inline constexpr size_t kMaxPeerMessageBytes = 1024;

// `what` says which call failed: "lookup at 10.0.0.1:7600".
absl::Status FromGrpc(const grpc::Status& status, const std::string& what);
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace sluice::client
