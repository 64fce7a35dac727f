// Where a server keeps encoded chunks. A chunk is immutable: its key is written once, then read or
// removed.
//
// A profile is immutable and named by the SHA-256 of its bytes. There is one copy of it for all
// namespaces that name it; it is stored before them and leaves when no namespace and no put uses
// it.
//
// Thread-safe: every function may be called from any thread; all of them may wait for the disk.
// Times are passed in by the caller or come from the clock that the store was made with. Errors:
// NotFound (namespace, chunk, profile), InvalidArgument and DataLoss (bytes that are not what was
// announced), ResourceExhausted (quota, disk, limits), Unavailable (I/O, with the path).
//
// Order of eviction. Every chunk has a use second: the whole second of its last use. The chunk with
// the oldest one goes first; among equals the one that lies further back in its context. Using a
// chunk uses the chunks before it in the context too, as far as they are known, so a context is
// eaten from its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "codec/chunk_key.h"
#include "codec/container.h"
#include "codec/digest.h"

namespace sluice::server {

using codec::Digest;
// The header of a stored chunk. Two puts of one key never share one, so the pointer is the identity
// of the stored bytes: a cache can tell by it whether its copy is still the right one.
using HeaderPtr = std::shared_ptr<const codec::ChunkHeader>;

struct ChunkId {
  Digest namespace_digest = {};
  Digest key = {};

  auto operator<=>(const ChunkId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const ChunkId& id) {
    return H::combine(std::move(h), id.namespace_digest, id.key);
  }
};

// "<first 8 digits of the namespace>/<first 16 digits of the key>", for logs and messages.
std::string ShortName(const ChunkId& id);

// An open chunk. Immutable and thread-safe; stays readable after the chunk is evicted or deleted.
class ChunkReader {
 public:
  virtual ~ChunkReader() = default;
  virtual const HeaderPtr& header() const = 0;
  // Fills `out` from `offset` of the container. REQUIRES: the range lies within the container.
  virtual absl::Status Read(uint64_t offset, std::span<std::byte> out) const = 0;
  // The whole container if it lies in memory, else empty.
  virtual std::span<const std::byte> bytes() const { return {}; }
};

using ReaderPtr = std::shared_ptr<const ChunkReader>;

// A stored profile. Whoever holds one keeps it from being forgotten. Immutable.
struct StoredProfile {
  Digest id = {};
  uint64_t bytes = 0;
  std::string content;  // of a store in memory; else empty
};

using ProfilePtr = std::shared_ptr<const StoredProfile>;

// An open profile. Immutable and thread-safe; stays readable after the profile is forgotten.
class ProfileReader {
 public:
  virtual ~ProfileReader() = default;
  virtual const ProfilePtr& profile() const = 0;
  // As ChunkReader::Read.
  virtual absl::Status Read(uint64_t offset, std::span<std::byte> out) const = 0;
};

// Chunks to act on: `keys` of a namespace, or all of it if there are none.
struct Selection {
  Digest namespace_digest = {};
  std::vector<Digest> keys;
  absl::Duration idle_at_least = absl::ZeroDuration();
};

// What a writer says before it sends a chunk. The namespace digest is that of the descriptor.
struct Announcement {
  codec::NamespaceDescriptor descriptor;
  ChunkId id;
  std::optional<Digest> parent_key;
  uint64_t total_bytes = 0;
  ProfilePtr profile;  // set by the store
};

enum class CommitResult { kStored, kAlreadyStored };

// One chunk or profile on its way in. One thread at a time; destroying it before a successful
// Commit undoes everything. Bytes are hostile: they are checked as they come.
class PutSession {
 public:
  virtual ~PutSession() = default;
  // The next bytes of the container or profile. After an error the session can only be destroyed.
  virtual absl::Status Append(std::span<const std::byte> bytes) = 0;
  // Makes it durable, then visible. Call once, after the last byte.
  virtual absl::StatusOr<CommitResult> Commit() = 0;
};

// Exactly one of the three holds.
struct BeginPutResult {
  bool already_stored = false;
  bool profile_needed = false;  // put it first
  std::unique_ptr<PutSession> session;
};

struct DeleteCounts {
  uint64_t deleted_chunks = 0;
  uint64_t deleted_bytes = 0;
  uint64_t pinned_chunks = 0;
};

struct NamespaceSummary {
  Digest digest = {};
  codec::NamespaceDescriptor descriptor;
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  uint64_t profile_bytes = 0;  // 0: the store has lost the profile
};

struct ChunkSummary {
  ChunkId id;
  HeaderPtr header;
  absl::Time used_at;  // a whole second
  bool pinned = false;
};

struct StoreUsage {
  uint64_t namespaces = 0;
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  uint64_t reserved_bytes = 0;  // by puts in progress
  uint64_t quota_bytes = 0;
  uint64_t evicted_chunks = 0;  // since start
  uint64_t profiles = 0;
  uint64_t profile_bytes = 0;  // not part of `bytes`
  uint64_t profile_quota_bytes = 0;
};

// How long a profile may wait for the first put that uses it.
inline constexpr absl::Duration kProfilePatience = absl::Seconds(30);

class Store {
 public:
  virtual ~Store() = default;

  // One entry per key, null for a chunk that is not stored. `keys` are in context order: neighbours
  // among them are remembered as such for the order of eviction, which does not change now.
  virtual std::vector<HeaderPtr> Lookup(const Digest& namespace_digest,
                                        std::span<const Digest> keys) = 0;
  virtual absl::StatusOr<ReaderPtr> Open(const ChunkId& id) = 0;
  // Marks a chunk, and those before it in its context, as used at `at`. Never moves a use back.
  virtual void Use(const ChunkId& id, absl::Time at) = 0;
  // Reserves the bytes; evicts to make room. ResourceExhausted if nothing more can be evicted.
  virtual absl::StatusOr<BeginPutResult> BeginPut(Announcement announcement) = 0;
  virtual absl::StatusOr<DeleteCounts> Delete(const Selection& selection, bool include_pinned) = 0;
  // These two return the number of chunks that the selection matched.
  virtual absl::StatusOr<uint64_t> Pin(const Selection& selection, bool pinned) = 0;
  virtual absl::StatusOr<uint64_t> Touch(const Selection& selection) = 0;
  // The stored bytes turned out to be damaged: the chunk disappears and its bytes are kept aside
  // for inspection where the store can do that. No effect if `header` is not the stored one any
  // more.
  virtual void RemoveDamaged(const ChunkId& id, const HeaderPtr& header) = 0;
  // Namespaces that hold chunks, in digest order.
  virtual std::vector<NamespaceSummary> ListNamespaces() = 0;
  // At most `limit` chunks in key order, from the first key after `after`.
  virtual absl::StatusOr<std::vector<ChunkSummary>> ListChunks(const Digest& namespace_digest,
                                                               const std::optional<Digest>& after,
                                                               size_t limit) = 0;
  // Reserves the bytes of a profile; `already_stored` or a session. ResourceExhausted if the quota
  // of profiles is full. A profile that was put stays for kProfilePatience though no put and no
  // namespace uses it.
  virtual absl::StatusOr<BeginPutResult> BeginPutProfile(const Digest& id,
                                                         uint64_t total_bytes) = 0;
  virtual absl::StatusOr<std::shared_ptr<const ProfileReader>> OpenProfile(const Digest& id) = 0;
  // As RemoveDamaged; namespaces that name the profile keep their chunks, and the next put into one
  // brings it back.
  virtual void RemoveDamagedProfile(const ProfilePtr& profile) = 0;
  // Forgets the profiles that nothing uses and nobody waits for; call now and then.
  virtual void DropUnusedProfiles() = 0;
  virtual StoreUsage Usage() = 0;
};

}  // namespace sluice::server
