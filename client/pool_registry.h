// The pools that engines have registered.
//
// Thread-safe. A pool stays mapped for as long as anybody holds its pointer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "client/block_pool.h"
#include "client/profile_store.h"
#include "codec/profile.h"

namespace sluice::client {

// A registered pool, and the profile with which its chunks are coded. Thread-safe.
class RegisteredPool {
 public:
  // `profile` is made for the geometry of the blocks.
  RegisteredPool(std::unique_ptr<BlockPool> blocks, ProfilePtr profile);
  // The profile comes from `profiles` when it is first needed.
  RegisteredPool(std::unique_ptr<BlockPool> blocks, const codec::Digest& profile_id,
                 std::shared_ptr<ProfileStore> profiles);

  BlockPool& blocks() const { return *blocks_; }
  const codec::Geometry& geometry() const { return blocks_->layout().geometry; }
  const codec::Digest& profile_id() const { return profile_id_; }
  // Waits as ProfileStore::Get does; at once if the profile is there. InvalidArgument if it is made
  // for another geometry. Once there, it stays for as long as the pool.
  absl::StatusOr<ProfilePtr> GetProfile(absl::Time deadline,
                                        const std::function<bool()>& cancelled);
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
  const codec::Digest profile_id_;
  const std::shared_ptr<ProfileStore> profiles_;  // null if the profile is there from the start
  absl::Mutex mutex_;
  ProfilePtr profile_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> closing_ = false;
};

class PoolRegistry {
 public:
  explicit PoolRegistry(size_t max_pools) : max_pools_(max_pools) {}

  // Returns the pool's id: random and never 0, so that nobody hits another's pool by an id that a
  // daemon before this one gave.
  absl::StatusOr<uint64_t> Add(std::shared_ptr<RegisteredPool> pool);
  absl::StatusOr<std::shared_ptr<RegisteredPool>> Find(uint64_t pool_id) const;
  // Returns when nobody uses the pool any more, or DeadlineExceeded; it is forgotten either way.
  absl::Status Remove(uint64_t pool_id, absl::Time deadline);
  size_t size() const;

 private:
  const size_t max_pools_;
  mutable absl::Mutex mutex_;
  std::random_device random_ ABSL_GUARDED_BY(mutex_);
  std::uniform_int_distribution<uint64_t> random_id_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<RegisteredPool>> pools_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::client
