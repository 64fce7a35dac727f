// A block pool in POSIX shared memory as a serving engine makes it: blocks one after the other, in
// each block plane after plane, in each plane [block_tokens, num_heads, head_dim].
//
// Thread-safe as client/block_pool.h. Used by the CLI to act as an engine towards the node daemon.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/block_pool.h"
#include "codec/geometry.h"

namespace sluice::client {

class EnginePool {
 public:
  // Makes a pool under a name of its own, with all of its memory. ResourceExhausted when /dev/shm
  // has no room for it.
  static absl::StatusOr<std::unique_ptr<EnginePool>> Create(const codec::Geometry& geometry,
                                                            uint32_t num_blocks,
                                                            uint32_t block_tokens);
  ~EnginePool();  // removes the name

  const std::string& shm_name() const { return shm_name_; }
  const BlockLayout& layout() const { return pool_->layout(); }
  BlockPool& blocks() { return *pool_; }
  // Removes the name, once the daemon has mapped the memory: nothing is left behind by a kill.
  void Unlink();

 private:
  EnginePool() = default;

  std::string shm_name_;
  bool linked_ = false;
  std::unique_ptr<BlockPool> pool_;
};

}  // namespace sluice::client
