// A server's manifest, checked: the wire's message -> the struct that callers may rely on.
#pragma once

#include "absl/status/statusor.h"
#include "client/remote_store.h"
#include "sluice/v1/store.pb.h"

namespace sluice::client {

// DataLoss names the field that is out of range or does not add up.
absl::StatusOr<ChunkManifest> CheckedManifest(const v1::ChunkManifest& message);

}  // namespace sluice::client
