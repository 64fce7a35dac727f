// The node daemon as seen by a serving engine.
//
// Thread-safe. Every call ends at its deadline at the latest; errors carry the daemon's own
// message.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "adapt/load_types.h"
#include "client/engine_pool.h"
#include "client/loader.h"
#include "codec/chunk_key.h"
#include "codec/profile.h"

namespace sluice::client {

struct NodeLoad {
  codec::NamespaceDescriptor identity;  // its profile_id is not used
  uint64_t pool_id = 0;
  std::vector<uint32_t> token_ids;
  std::vector<uint32_t> block_ids;  // of each run of block_tokens tokens
  uint32_t slo_ms = 0;
  adapt::RecomputeCapability capability = adapt::RecomputeCapability::kNone;
  std::optional<codec::Level> exact_level;  // unset: the best that the SLO allows
  std::string request_id;                   // in the daemon's log
};

struct NodeSave {
  codec::NamespaceDescriptor identity;
  uint64_t pool_id = 0;
  std::vector<uint32_t> token_ids;
  std::vector<uint32_t> block_ids;
  bool lossless = false;
  std::string request_id;
};

struct NodeSaved {
  uint32_t stored_chunks = 0;
  uint32_t existing_chunks = 0;
  uint64_t bytes = 0;
  uint32_t unusual_rate_chunks = 0;  // see codec/rate_check.h
};

struct NodeStatus {
  std::string node;
  std::string server;
  std::string breaker;  // "closed", "open", "half open"
  double link_bytes_per_s = 0;
  uint32_t pools = 0;
  uint32_t loads = 0;
  uint32_t saves = 0;
  uint64_t loaded_chunks = 0;
  uint64_t recompute_chunks = 0;
  uint64_t received_bytes = 0;
  uint64_t late_loads = 0;
  uint64_t dropped_records = 0;
  uint64_t uptime_ms = 0;
  uint64_t unusual_rate_chunks = 0;  // encoded since start
};

// Holds a pool: the daemon forgets it when this goes, or the process.
class PoolHold {
 public:
  virtual ~PoolHold() = default;
};

class NodeClient {
 public:
  // `socket` is a path, with or without "unix:" before it. Does not connect yet.
  static std::unique_ptr<NodeClient> Create(const std::string& socket);
  virtual ~NodeClient() = default;

  // `profile_id`: of the chunks that are loaded and saved; unset for the built-in profile.
  virtual absl::StatusOr<uint64_t> RegisterPool(const EnginePool& pool,
                                                const std::optional<codec::Digest>& profile_id,
                                                absl::Time deadline) = 0;
  // Does not wait for the daemon.
  virtual std::unique_ptr<PoolHold> HoldPool(uint64_t pool_id) = 0;
  virtual absl::Status UnregisterPool(uint64_t pool_id, absl::Time deadline) = 0;
  // Returns when the daemon has sent its summary. `on_outcomes` is called from this thread.
  virtual absl::StatusOr<LoadResult> Load(const NodeLoad& load, const OnOutcomes& on_outcomes,
                                          absl::Time deadline) = 0;
  // Returns when every full chunk is durable. Aborted: the daemon could not store one.
  virtual absl::StatusOr<NodeSaved> Save(const NodeSave& save, absl::Time deadline) = 0;
  virtual absl::StatusOr<NodeStatus> Status(absl::Time deadline) = 0;
};

}  // namespace sluice::client
