// The Fetch stream over gRPC; see FetchStream in client/remote_store.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/remote_store.h"
#include "sluice/v1/store.grpc.pb.h"

namespace sluice::client {

// `stub` must outlive the stream. `what` begins the stream's errors: "fetch at 10.0.0.1:7600".
absl::StatusOr<std::unique_ptr<FetchStream>> OpenFetchStream(v1::Store::Stub& stub,
                                                             const codec::Digest& namespace_digest,
                                                             const std::string& load_id,
                                                             std::string what, absl::Time deadline);

}  // namespace sluice::client
