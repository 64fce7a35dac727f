#include "client/pool_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/profile_geometry.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

absl::Status NoSuchPool(uint64_t pool_id) {
  return absl::NotFoundError(absl::StrCat("pool_id ", pool_id, " is not registered"));
}

}  // namespace

RegisteredPool::RegisteredPool(std::unique_ptr<BlockPool> blocks, ProfilePtr profile)
    : blocks_(std::move(blocks)), profile_id_(profile->id()), profile_(std::move(profile)) {}

RegisteredPool::RegisteredPool(std::unique_ptr<BlockPool> blocks, const codec::Digest& profile_id,
                               std::shared_ptr<ProfileStore> profiles)
    : blocks_(std::move(blocks)), profile_id_(profile_id), profiles_(std::move(profiles)) {}

absl::StatusOr<ProfilePtr> RegisteredPool::GetProfile(absl::Time deadline,
                                                      const std::function<bool()>& cancelled) {
  {
    absl::MutexLock lock(&mutex_);
    if (profile_ != nullptr) return profile_;
  }
  ASSIGN_OR_RETURN(ProfilePtr profile, profiles_->Get(profile_id_, deadline, cancelled));
  RETURN_IF_ERROR(CheckSameGeometry(profile->geometry(), geometry()));
  absl::MutexLock lock(&mutex_);
  profile_ = profile;
  return profile;
}

absl::StatusOr<uint64_t> PoolRegistry::Add(std::shared_ptr<RegisteredPool> pool) {
  absl::MutexLock lock(&mutex_);
  if (pools_.size() >= max_pools_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("limits.pools: ", max_pools_, " pools are registered"));
  }
  uint64_t id = 0;
  while (id == 0 || pools_.contains(id)) id = random_id_(random_);
  pools_[id] = std::move(pool);
  return id;
}

absl::StatusOr<std::shared_ptr<RegisteredPool>> PoolRegistry::Find(uint64_t pool_id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = pools_.find(pool_id);
  if (found == pools_.end()) return NoSuchPool(pool_id);
  return found->second;
}

absl::Status PoolRegistry::Remove(uint64_t pool_id, absl::Time deadline) {
  std::shared_ptr<RegisteredPool> pool;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = pools_.find(pool_id);
    if (found == pools_.end()) return NoSuchPool(pool_id);
    pool = std::move(found->second);
    pools_.erase(found);
  }
  const std::shared_ptr<absl::Notification> unmapped = pool->farewell_.unmapped;
  pool->closing_.store(true);
  pool.reset();
  if (!unmapped->WaitForNotificationWithTimeout(deadline - absl::Now())) {
    return absl::DeadlineExceededError(absl::StrCat("pool ", pool_id, " is still being used"));
  }
  return absl::OkStatus();
}

size_t PoolRegistry::size() const {
  absl::MutexLock lock(&mutex_);
  return pools_.size();
}

}  // namespace sluice::client
