// What a store knows about its chunks without touching the disk: headers, use seconds, pins, quota.
//
// Thread-safe; never blocks on I/O. Holds about 200 bytes and the header (16 bytes a segment) per
// chunk. The index decides what is visible and what is evicted; its owner moves the bytes
// accordingly.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/store.h"

namespace sluice::server {

class ChunkIndex {
 public:
  ChunkIndex(uint64_t quota_bytes, size_t max_namespaces);

  // Makes a namespace known; nothing happens if it is. ResourceExhausted at `max_namespaces`.
  absl::Status AddNamespace(const Digest& digest, const codec::NamespaceDescriptor& descriptor);
  bool HasNamespace(const Digest& digest) const;
  // Forgets the namespaces without chunks and returns them.
  std::vector<Digest> RemoveEmptyNamespaces();
  size_t namespace_count() const;

  // Sets `bytes` of the quota aside. Returns the chunks that had to leave: they are out of the
  // index already, the owner must remove their bytes. On an error nothing has changed.
  absl::StatusOr<std::vector<ChunkId>> Reserve(uint64_t bytes);
  void Release(uint64_t bytes);
  // Chunks that must leave for the quota to hold; used after a scan. As Reserve.
  std::vector<ChunkId> EvictToQuota();

  // Makes a chunk visible and turns `reserved_bytes` into its bytes; false if the key is there
  // already (then the reservation stays). REQUIRES: the namespace is known.
  bool Insert(const ChunkId& id, HeaderPtr header, uint64_t reserved_bytes, absl::Time used_at,
              const std::optional<Digest>& parent);
  // Null if the chunk is not stored.
  HeaderPtr Find(const ChunkId& id) const;
  std::vector<HeaderPtr> Lookup(const Digest& namespace_digest, std::span<const Digest> keys);
  // Returns the header of what was removed, or null.
  HeaderPtr Remove(const ChunkId& id);

  // Returns the chunks whose use second changed.
  std::vector<ChunkId> Use(const ChunkId& id, absl::Time at);
  void SetPinned(const ChunkId& id, bool pinned);
  std::vector<Digest> PinnedKeys(const Digest& namespace_digest) const;

  // NotFound if the namespace is unknown; unknown keys are left out.
  absl::StatusOr<std::vector<ChunkSummary>> Select(const Selection& selection,
                                                   absl::Time now) const;
  std::vector<NamespaceSummary> ListNamespaces() const;
  absl::StatusOr<std::vector<ChunkSummary>> ListChunks(const Digest& namespace_digest,
                                                       const std::optional<Digest>& after,
                                                       size_t limit) const;
  // Of the profiles that namespaces name, those without chunks too.
  absl::flat_hash_set<Digest> ProfileIds() const;
  StoreUsage Usage() const;

 private:
  struct Entry {
    HeaderPtr header;
    uint64_t bytes = 0;
    int64_t use_second = 0;
    bool pinned = false;
    std::optional<Digest> parent;
  };
  struct Namespace {
    codec::NamespaceDescriptor descriptor;
    absl::btree_map<Digest, Entry> chunks;
    uint64_t bytes = 0;
  };
  // First to go comes first: use second, then distance from the end of the context.
  using OrderKey = std::tuple<int64_t, uint32_t, ChunkId>;

  static OrderKey Order(const ChunkId& id, const Entry& entry);
  static ChunkSummary Summary(const Digest& digest, const Digest& key, const Entry& entry);
  Entry* FindEntry(const ChunkId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const Entry* FindEntry(const ChunkId& id) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Raises a use second and keeps the order; true if it changed.
  bool Raise(const ChunkId& id, Entry& entry, int64_t second) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  HeaderPtr RemoveLocked(const ChunkId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<ChunkId> EvictUntil(uint64_t allowed_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t quota_bytes_;
  const size_t max_namespaces_;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<Digest, Namespace> namespaces_ ABSL_GUARDED_BY(mu_);
  absl::btree_set<OrderKey> evictable_ ABSL_GUARDED_BY(mu_);  // every chunk that is not pinned
  uint64_t chunks_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t pinned_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t reserved_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t evicted_chunks_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace sluice::server
