// Calls that last as long as an engine lives, one for each pool that it holds.
//
// Thread-safe. They run on gRPC's callbacks, so that no thread waits in them: there can be as many
// as pools (limits.pools), and a thread for each would leave too few to loads and saves.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstddef>
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
  // Waits for the calls to be over; the server is shut down.
  ~PoolHolds();
  PoolHolds(const PoolHolds&) = delete;
  PoolHolds& operator=(const PoolHolds&) = delete;

  // The call that holds the pool. It ends at once if the pool is held, or if `check` says that it
  // is not there; End reaches it from before `check` on.
  Reactor* Hold(uint64_t pool_id, const std::function<absl::Status()>& check);
  // The pool is unregistered: ends the call that holds it, if there is one.
  void End(uint64_t pool_id);
  // Ends all calls, and later ones at once. Their pools stay, for the saves that go on.
  void Stop();

 private:
  class Call;

  // Calls share it, for a server that is shut down may still be telling them that they are over.
  struct State {
    absl::Mutex mutex;
    bool stopped ABSL_GUARDED_BY(mutex) = false;
    size_t running ABSL_GUARDED_BY(mutex) = 0;  // calls that may still use on_gone_
    absl::flat_hash_map<uint64_t, std::shared_ptr<Call>> calls ABSL_GUARDED_BY(mutex);

    absl::Status Add(uint64_t pool_id, std::shared_ptr<Call> call) ABSL_LOCKS_EXCLUDED(mutex);
    void Remove(uint64_t pool_id, const Call* call) ABSL_LOCKS_EXCLUDED(mutex);
  };

  const std::function<void(uint64_t pool_id)> on_gone_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace sluice::client
