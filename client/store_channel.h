// The connection to a storage server: channel options and deadlines, shared by the stub files of
// client/.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace sluice::client {

// Largest message in either direction, bytes: a lookup's answer; frames are smaller by far.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Does not connect. Nothing is retried, and calls fail at once while the server is away.
std::shared_ptr<grpc::Channel> MakeStoreChannel(const std::string& address);
// `deadline`, or kMaxCallTime from now if that is sooner.
void SetDeadline(grpc::ClientContext& context, absl::Time deadline);

}  // namespace sluice::client
