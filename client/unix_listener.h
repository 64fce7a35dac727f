// Makes way for a unix socket: removes one that a dead process left behind.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice::client {

// After OK there is nothing at `path`. AlreadyExists if a process listens there; FailedPrecondition
// if it is something else than a socket.
absl::Status ClearStaleSocket(const std::string& path);

}  // namespace sluice::client
