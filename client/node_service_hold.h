// Calls that last as long as an engine lives, one for each pool that it holds.
//
// Thread-safe. They run on gRPC's callbacks, so that no thread waits in them: there can be as many
// as pools (limits.pools), and a thread for each would leave too few to loads and saves.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "sluice/v1/node.pb.h"

namespace sluice::client {

class PoolHolds {
 public:
  using Reactor = grpc::ServerWriteReactor<v1::HoldPoolResponse>;

  // `on_gone` is called when the engine that held a pool is gone, from a thread of gRPC's.
  explicit PoolHolds(std::function<void(uint64_t pool_id)> on_gone)
      : on_gone_(std::move(on_gone)) {}

  // The call that holds the pool. It ends at once if the pool is held, or if `check` says that it
  // is not there; End reaches it from before `check` on.
  Reactor* Hold(uint64_t pool_id, const std::function<absl::Status()>& check);
  // The pool is unregistered: ends the call that holds it, if there is one.
  void End(uint64_t pool_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all calls, and later ones at once. Their pools stay, for the saves that go on.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;

  absl::Status Add(uint64_t pool_id, std::shared_ptr<Call> call) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(uint64_t pool_id, const Call* call) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::function<void(uint64_t pool_id)> on_gone_;
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::client
