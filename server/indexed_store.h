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
  std::vector<NamespaceSummary> ListNamespaces() override { return index_.ListNamespaces(); }
  absl::StatusOr<std::vector<ChunkSummary>> ListChunks(const Digest& namespace_digest,
                                                       const std::optional<Digest>& after,
                                                       size_t limit) override {
    return index_.ListChunks(namespace_digest, after, limit);
  }
  absl::StatusOr<std::shared_ptr<const std::string>> GetProfile(
      const Digest& namespace_digest) override {
    return index_.GetProfile(namespace_digest);
  }
  StoreUsage Usage() override { return index_.Usage(); }

  void Use(const ChunkId& id, absl::Time at) override;
  absl::StatusOr<uint64_t> Touch(const Selection& selection) override;
  absl::StatusOr<uint64_t> Pin(const Selection& selection, bool pinned) override;
  absl::StatusOr<DeleteCounts> Delete(const Selection& selection, bool include_pinned) override;
  // Checks the announcement, reserves its bytes, removes what is evicted, then asks for
  // MakeSession.
  absl::StatusOr<BeginPutResult> BeginPut(Announcement announcement) override;

 protected:
  IndexedStore(uint64_t quota_bytes, size_t max_namespaces, Clock clock)
      : index_(quota_bytes, max_namespaces), clock_(std::move(clock)) {}

  // The session owns the reservation of `announcement.total_bytes` from now on.
  virtual absl::StatusOr<std::unique_ptr<PutSession>> MakeSession(Announcement announcement) = 0;
  // Takes a chunk out of the index and removes its bytes; false if it was not there.
  virtual absl::StatusOr<bool> RemoveChunk(const ChunkId& id) = 0;
  // Removes the bytes of a chunk that has left the index already.
  virtual void RemoveEvicted(const ChunkId& id) = 0;
  // Make new use seconds and pins survive a restart.
  virtual void PersistUse(const ChunkId& id, absl::Time at) {}
  virtual absl::Status PersistPins(const Digest& namespace_digest) { return absl::OkStatus(); }
  // Forgets the namespaces without chunks, unless a chunk is being placed into one of them.
  virtual void DropEmptyNamespaces() = 0;

  ChunkIndex index_;
  const Clock clock_;
};

}  // namespace sluice::server
