// A store in memory, for tests and for servers without a disk. Pins and use seconds end with it.
//
// Thread-safe, like Store.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/indexed_store.h"

namespace sluice::server {

class MemoryStore : public IndexedStore {
 public:
  static constexpr uint64_t kProfileQuotaBytes = uint64_t{4} << 30;

  explicit MemoryStore(
      uint64_t quota_bytes, size_t max_namespaces = 1024, Clock clock = [] { return absl::Now(); });

  absl::StatusOr<ReaderPtr> Open(const ChunkId& id) override;
  void RemoveDamaged(const ChunkId& id, const HeaderPtr& header) override;
  absl::StatusOr<std::shared_ptr<const ProfileReader>> OpenProfile(const Digest& id) override;
  void RemoveDamagedProfile(const ProfilePtr& profile) override { profiles_.Remove(profile); }
  void DropUnusedProfiles() override { TakeUnusedProfiles(); }

 protected:
  absl::StatusOr<std::unique_ptr<PutSession>> MakeSession(Announcement announcement) override;
  absl::StatusOr<std::unique_ptr<PutSession>> MakeProfileSession(const Digest& id,
                                                                 uint64_t total_bytes) override;
  absl::StatusOr<bool> RemoveChunk(const ChunkId& id) override;
  void RemoveEvicted(const ChunkId& id) override;
  void DropEmptyNamespaces() override;

 private:
  friend class MemoryPut;
  friend class MemoryProfilePut;
  absl::StatusOr<CommitResult> Place(const Announcement& announcement, HeaderPtr header,
                                     std::string container);

  absl::Mutex mu_;  // makes a change of the index and of the bytes one step
  absl::flat_hash_map<ChunkId, ReaderPtr> chunks_ ABSL_GUARDED_BY(mu_);
};

// A reader of bytes in memory, which it owns. REQUIRES: `header` is the container's.
ReaderPtr MakeMemoryReader(HeaderPtr header, std::string container);

}  // namespace sluice::server
