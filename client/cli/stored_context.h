// Contexts on a server, loaded bit by bit as they were stored, for commands that read caches.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "client/context_planes.h"

namespace sluice::cli {

// Where contexts are stored; as `fetch --tokens` names it.
struct StoreOptions {
  ServerOptions server;
  std::string name_space;  // NAMESPACE, if the identity is not enough
  IdentityOptions identity;
};

// Is the file a list of token ids, which name a context?
bool IsTokensFile(const std::string& path);

// Loads the full chunks of the context with the token ids in the file at `path`. They are on the
// disk, not in memory. FailedPrecondition, with advice, if chunks are not stored or are stored
// without the lossless level.
absl::StatusOr<client::ContextPlanes> LoadStored(const StoreOptions& options,
                                                 const std::string& path);

}  // namespace sluice::cli
