// A storage server as seen by people: listing, removing, pinning, counters.
//
// Thread-safe. Deadlines and errors as in client/remote_store.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "codec/chunk_key.h"

namespace sluice::client {

// Chooses chunks of one namespace.
struct ChunkSelector {
  codec::Digest namespace_digest = {};
  std::vector<codec::Digest> chunk_keys;  // empty: the whole namespace
  uint64_t idle_at_least_ms = 0;          // only chunks that were last used longer ago; 0: all
};

struct DeleteResult {
  uint64_t deleted_chunks = 0;
  uint64_t deleted_bytes = 0;
  uint64_t pinned_chunks = 0;  // kept because they are pinned
};

struct NamespaceInfo {
  codec::Digest namespace_digest = {};
  codec::NamespaceDescriptor descriptor;
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  uint64_t profile_bytes = 0;  // 0: the server has lost the profile
};

struct ChunkInfo {
  codec::Digest chunk_key = {};
  uint32_t start_token = 0;
  uint32_t num_tokens = 0;
  uint64_t bytes = 0;
  uint64_t idle_ms = 0;  // since it was last used
  bool pinned = false;
  uint32_t lossy_levels = 0;
  bool lossless = false;
};

struct ChunkPage {
  std::vector<ChunkInfo> chunks;            // in key order
  std::optional<codec::Digest> next_after;  // `after` of the next page; unset on the last
};

// Counters since the server's start, and what it holds now.
struct ServerStats {
  uint64_t uptime_ms = 0;
  uint64_t namespaces = 0;
  uint64_t chunks = 0;
  uint64_t disk_bytes = 0;
  uint64_t disk_quota_bytes = 0;
  uint64_t cache_bytes = 0;
  uint64_t cache_limit_bytes = 0;
  uint64_t cache_hits = 0;
  uint64_t cache_misses = 0;
  uint64_t lookup_keys = 0;
  uint64_t lookup_found = 0;
  uint64_t fetch_streams = 0;
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t committed_chunks = 0;
  uint64_t evicted_chunks = 0;
  uint64_t damaged = 0;
  uint64_t uploads = 0;
  uint64_t profiles = 0;
  uint64_t profile_bytes = 0;
  uint64_t profile_quota_bytes = 0;
};

class RemoteAdmin {
 public:
  // As RemoteStore::Create; both share a connection to the same address.
  static std::unique_ptr<RemoteAdmin> Create(const std::string& address);
  virtual ~RemoteAdmin() = default;

  virtual const std::string& address() const = 0;
  // Asks the server's health service; Unavailable when it is starting or draining. Returns the time
  // taken.
  virtual absl::StatusOr<absl::Duration> Ping(absl::Time deadline) = 0;
  virtual absl::StatusOr<DeleteResult> Delete(const ChunkSelector& selector, bool include_pinned,
                                              absl::Time deadline) = 0;
  // Both return the number of chunks that the selector matched.
  virtual absl::StatusOr<uint64_t> Pin(const ChunkSelector& selector, bool pinned,
                                       absl::Time deadline) = 0;
  virtual absl::StatusOr<uint64_t> Touch(const ChunkSelector& selector, absl::Time deadline) = 0;
  virtual absl::StatusOr<std::vector<NamespaceInfo>> ListNamespaces(absl::Time deadline) = 0;
  // One page, of at most `page_size` chunks (0: the server's limit), after the key `after`.
  virtual absl::StatusOr<ChunkPage> ListChunks(const codec::Digest& namespace_digest,
                                               uint32_t page_size,
                                               const std::optional<codec::Digest>& after,
                                               absl::Time deadline) = 0;
  virtual absl::StatusOr<ServerStats> Stats(absl::Time deadline) = 0;
};

}  // namespace sluice::client
