// One transfer for loads that want the same bytes of a chunk at about the same time.
//
// The first load that wants them carries: it asks the server, and hands over what came. The others
// follow: they are told when it is there, or that the carrier has given up, and then one of them
// carries. What came last is kept a little for those who come a moment later.
//
// Thread-safe. Never blocks on a load. Bytes are handed over as they came; whoever takes them
// checks them as if they came from the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "codec/digest.h"

namespace sluice::client {

class TransferShare {
 public:
  // What is asked for: a run of layers of a chunk. The namespace keeps tenants apart.
  struct Key {
    codec::Digest namespace_digest = {};
    codec::Digest chunk_key = {};
    uint32_t first_layer = 0;
    uint32_t num_layers = 0;
    bool with_header = false;

    auto Fields() const {
      return std::tie(namespace_digest, chunk_key, first_layer, num_layers, with_header);
    }
    bool operator==(const Key& other) const { return Fields() == other.Fields(); }
    template <typename H>
    friend H AbslHashValue(H hash, const Key& key) {
      return H::combine(std::move(hash), key.Fields());
    }
  };
  struct Piece {
    uint64_t offset = 0;  // in the container
    std::string payload;
  };
  using Pieces = std::shared_ptr<const std::vector<Piece>>;
  // Null when the carrier gave up: whoever still wants the bytes joins again. Called from the
  // carrier's thread, once, unless the follower leaves first; must not block or call back.
  using Tell = std::function<void(Pieces)>;

  // `kept_bytes`: of transfers that are over.
  explicit TransferShare(uint64_t kept_bytes) : kept_limit_(kept_bytes) {}

  enum class Role { kCarry, kFollow, kThere };
  // kThere: `tell` was called already. `member` names the load and ask in Leave.
  Role Join(const Key& key, uint64_t member, Tell tell);
  // A follower does not want it any more. `tell` is not running or called on return.
  void Leave(const Key& key, uint64_t member);
  // The carrier has all bytes, or will not have them.
  void Complete(const Key& key, Pieces pieces);
  void Abandon(const Key& key);

 private:
  struct Transfer {
    std::vector<std::pair<uint64_t, Tell>> followers;
    Pieces pieces;  // set when it is over
    uint64_t bytes = 0;
    std::list<Key>::iterator kept;
  };

  void TellAll(Transfer& transfer, const Pieces& pieces) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t kept_limit_;
  absl::Mutex mutex_;
  absl::flat_hash_map<Key, Transfer> transfers_ ABSL_GUARDED_BY(mutex_);
  std::list<Key> kept_ ABSL_GUARDED_BY(mutex_);  // oldest first
  uint64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::client
