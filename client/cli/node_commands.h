// Commands that act as a serving engine towards the node daemon.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/failure.h"
#include "client/cli/source.h"
#include "client/engine_pool.h"
#include "client/node_client.h"

namespace sluice::cli {

// A connection to the daemon with a registered pool that holds one context, in order of blocks.
class NodeSession {
 public:
  // The pool has the built-in profile if `profile` is null. Another one must be on the storage
  // server, from where the daemon takes it.
  static absl::StatusOr<NodeSession> Open(const std::string& socket,
                                          const codec::Geometry& geometry,
                                          const codec::Profile* profile, uint32_t num_tokens,
                                          uint32_t chunk_tokens, double timeout_s);
  NodeSession(NodeSession&&) = default;
  ~NodeSession();  // unregisters the pool

  client::NodeClient& client() { return *client_; }
  client::EnginePool& pool() { return *pool_; }
  uint64_t pool_id() const { return pool_id_; }
  std::vector<uint32_t> block_ids() const;

 private:
  NodeSession() = default;

  std::unique_ptr<client::NodeClient> client_;
  std::unique_ptr<client::EnginePool> pool_;
  std::unique_ptr<client::PoolHold> hold_;
  uint64_t pool_id_ = 0;
};

// The daemon's storage server.
absl::StatusOr<ServerOptions> ServerOfNode(const std::string& socket, double timeout_s);

struct NodePutOptions {
  std::string socket;
  SourceOptions source;
  double timeout_s = 10;
  bool json = false;
};
absl::StatusOr<ExitCode> PutThroughNode(const NodePutOptions& options);

absl::StatusOr<ExitCode> NodeStats(const std::string& socket, double timeout_s, bool json);

// The status; if it says that nothing answered, with the socket and advice.
absl::Status ExplainNoNode(const absl::Status& status, const std::string& socket);

}  // namespace sluice::cli
