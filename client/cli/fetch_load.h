// Loads a context into memory, from a server or through the node daemon.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/fetch_plan.h"
#include "client/context_planes.h"
#include "client/loader.h"

namespace sluice::cli {

struct Fetched {
  client::ContextPlanes planes;  // only tokens of loaded chunks mean something
  client::LoadResult result;     // one outcome per chunk, in order
};

absl::StatusOr<Fetched> LoadFromServer(const FetchOptions& options, const FetchPlan& plan);
// The same into given planes of the plan's geometry and tokens.
client::LoadResult LoadFromServer(const FetchOptions& options, const FetchPlan& plan,
                                  client::ContextPlanes& planes);
absl::StatusOr<Fetched> LoadThroughNode(const FetchOptions& options, const FetchPlan& plan);

}  // namespace sluice::cli
