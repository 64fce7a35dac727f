// Which profiles a store has, and how many bytes they take; the owner moves the bytes.
//
// Thread-safe; never blocks on I/O. The table's lock is taken before the index's, never after it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/store.h"

namespace sluice::server {

class ProfileTable {
 public:
  explicit ProfileTable(uint64_t quota_bytes) : quota_bytes_(quota_bytes) {}

  // Sets `bytes` of the quota aside for a profile that is on its way in.
  absl::Status Reserve(uint64_t bytes);
  void Release(uint64_t bytes);

  // Makes a profile visible and turns `reserved_bytes` into its bytes; false if it is there already
  // (then the reservation stays). Nothing drops it before `kept_until`.
  bool Insert(ProfilePtr profile, uint64_t reserved_bytes, absl::Time kept_until);
  // Null if there is none. Holding the result keeps the profile.
  ProfilePtr Find(const Digest& id) const;
  // As Find; a profile without users is kept until then.
  ProfilePtr FindAndKeep(const Digest& id, absl::Time kept_until);
  // As Find; from now on it is kept by its users alone.
  ProfilePtr FindToUse(const Digest& id);
  // False if `profile` is not the one that is there.
  bool Remove(const ProfilePtr& profile);
  // Takes out the profiles that nobody holds, that are not among `used()` and not kept, and returns
  // them. `used` is asked after it is certain that nobody holds the candidates.
  std::vector<Digest> RemoveUnused(absl::Time now,
                                   const std::function<absl::flat_hash_set<Digest>()>& used);
  // Adds the sizes of the profiles to what is known of namespaces and usage.
  void Describe(std::vector<NamespaceSummary>& namespaces) const;
  void Describe(StoreUsage& usage) const;

 private:
  struct Entry {
    ProfilePtr profile;
    absl::Time kept_until;
  };

  const uint64_t quota_bytes_;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<Digest, Entry> profiles_ ABSL_GUARDED_BY(mu_);
  uint64_t used_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t reserved_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace sluice::server
