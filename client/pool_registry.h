// The pools that engines have registered.
//
// Thread-safe. A pool stays mapped for as long as anybody holds its pointer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "client/block_pool.h"
#include "codec/profile.h"

namespace sluice::client {

class RegisteredPool {
 public:
  RegisteredPool(std::unique_ptr<BlockPool> blocks, codec::Profile profile)
      : blocks_(std::move(blocks)), profile_(std::move(profile)) {}

  BlockPool& blocks() const { return *blocks_; }
  const codec::Profile& profile() const { return profile_; }
  // True once the pool is being forgotten: whoever uses it should let go of it within 10 ms.
  bool closing() const { return closing_.load(); }

 private:
  friend class PoolRegistry;

  // Destroyed last, when the pool is unmapped.
  struct Farewell {
    std::shared_ptr<absl::Notification> unmapped = std::make_shared<absl::Notification>();
    ~Farewell() { unmapped->Notify(); }
  };

  Farewell farewell_;
  const std::unique_ptr<BlockPool> blocks_;
  const codec::Profile profile_;
  std::atomic<bool> closing_ = false;
};

class PoolRegistry {
 public:
  explicit PoolRegistry(size_t max_pools) : max_pools_(max_pools) {}

  // Returns the pool's id. The profile is the built-in one of the pool's geometry.
  absl::StatusOr<uint64_t> Add(std::unique_ptr<BlockPool> blocks);
  absl::StatusOr<std::shared_ptr<RegisteredPool>> Find(uint64_t pool_id) const;
  // Returns when nobody uses the pool any more, or DeadlineExceeded; it is forgotten either way.
  absl::Status Remove(uint64_t pool_id, absl::Time deadline);
  size_t size() const;

 private:
  const size_t max_pools_;
  mutable absl::Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, std::shared_ptr<RegisteredPool>> pools_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::client
