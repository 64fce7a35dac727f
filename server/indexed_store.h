// The part of a store that needs the index only: everything but moving bytes.
//
// Thread-safe, like Store.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/chunk_index.h"
#include "server/profile_table.h"
#include "server/store.h"

namespace sluice::server {

// The present time; a parameter so that tests decide it.
using Clock = std::function<absl::Time()>;

class IndexedStore : public Store {
 public:
  std::vector<HeaderPtr> Lookup(const Digest& namespace_digest,
                                std::span<const Digest> keys) override {
    return index_.Lookup(namespace_digest, keys);
  }
  std::vector<NamespaceSummary> ListNamespaces() override;
  absl::StatusOr<std::vector<ChunkSummary>> ListChunks(const Digest& namespace_digest,
                                                       const std::optional<Digest>& after,
                                                       size_t limit) override {
    return index_.ListChunks(namespace_digest, after, limit);
  }
  StoreUsage Usage() override;

  void Use(const ChunkId& id, absl::Time at) override;
  absl::StatusOr<uint64_t> Touch(const Selection& selection) override;
  absl::StatusOr<uint64_t> Pin(const Selection& selection, bool pinned) override;
  absl::StatusOr<DeleteCounts> Delete(const Selection& selection, bool include_pinned) override;
  // Checks the announcement, reserves its bytes, removes what is evicted, then asks for
  // MakeSession.
  absl::StatusOr<BeginPutResult> BeginPut(Announcement announcement) override;
  // Reserves the bytes, if need be after forgetting what is not used, then asks for
  // MakeProfileSession.
  absl::StatusOr<BeginPutResult> BeginPutProfile(const Digest& id, uint64_t total_bytes) override;

 protected:
  struct Limits {
    uint64_t quota_bytes = 0;
    uint64_t profile_quota_bytes = 0;
    size_t max_namespaces = 1024;
  };

  IndexedStore(const Limits& limits, Clock clock)
      : index_(limits.quota_bytes, limits.max_namespaces),
        profiles_(limits.profile_quota_bytes),
        clock_(std::move(clock)) {}

  // The session owns the reservation of `announcement.total_bytes` from now on.
  virtual absl::StatusOr<std::unique_ptr<PutSession>> MakeSession(Announcement announcement) = 0;
  // The session owns the reservation of `total_bytes` in `profiles_` from now on.
  virtual absl::StatusOr<std::unique_ptr<PutSession>> MakeProfileSession(const Digest& id,
                                                                         uint64_t total_bytes) = 0;
  // Takes a chunk out of the index and removes its bytes; false if it was not there.
  virtual absl::StatusOr<bool> RemoveChunk(const ChunkId& id) = 0;
  // Removes the bytes of a chunk that has left the index already.
  virtual void RemoveEvicted(const ChunkId& id) = 0;
  // Make new use seconds and pins survive a restart.
  virtual void PersistUse(const ChunkId& id, absl::Time at) {}
  virtual absl::Status PersistPins(const Digest& namespace_digest) { return absl::OkStatus(); }
  // Forgets the namespaces without chunks, unless a chunk is being placed into one of them.
  virtual void DropEmptyNamespaces() = 0;

  // Until when a profile that has just been put, or offered, waits for its first use.
  absl::Time KeptUntil() const { return clock_() + kProfilePatience; }
  // Takes the profiles without users out of the table and returns them.
  std::vector<Digest> TakeUnusedProfiles();

  ChunkIndex index_;
  ProfileTable profiles_;
  const Clock clock_;
};

}  // namespace sluice::server
