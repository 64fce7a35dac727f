// Whole containers in memory, least recently used out first.
//
// Thread-safe. Threads that want the same chunk at the same time share one read of the disk. A
// chunk is verified when it is read, so damaged bytes never enter; a chunk too large for the cache
// is read from the store range by range, after the layers that are wanted were verified.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/store.h"

namespace sluice::server {

// Bitstream layers [first, first + count) of a chunk.
struct LayerRange {
  size_t first = 0;
  size_t count = 0;
};

struct CacheUsage {
  uint64_t bytes = 0;
  uint64_t limit_bytes = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
};

class ChunkCache {
 public:
  // `max_chunk_bytes`: larger chunks bypass the cache. `store` must live longer.
  ChunkCache(Store* store, uint64_t limit_bytes, uint64_t max_chunk_bytes);

  // A reader of the chunk's stored bytes. `to_verify` are the layers that must have been verified
  // when the chunk is not cached; layers that do not exist are ignored. NotFound: not stored.
  // DataLoss: was damaged, and has been removed from the store. Unavailable: could not be read.
  absl::StatusOr<ReaderPtr> Get(const ChunkId& id, LayerRange to_verify);
  CacheUsage Usage() const;

 private:
  struct Entry {
    HeaderPtr header;  // identity of the bytes
    ReaderPtr reader;  // null while loading
    uint64_t bytes = 0;
    std::list<ChunkId>::iterator place;  // in lru_, when loaded
  };

  absl::StatusOr<ReaderPtr> Load(const ChunkId& id, uint64_t bytes);
  absl::StatusOr<ReaderPtr> Bypass(const ChunkId& id, LayerRange to_verify);
  // Makes room for `bytes`; false if what is being loaded leaves too little.
  bool MakeRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(absl::flat_hash_map<ChunkId, Entry>::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Store* const store_;
  const uint64_t limit_bytes_;
  const uint64_t max_chunk_bytes_;
  std::atomic<uint64_t> hits_ = 0;
  std::atomic<uint64_t> misses_ = 0;
  mutable absl::Mutex mu_;
  absl::CondVar loaded_;
  absl::flat_hash_map<ChunkId, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::list<ChunkId> lru_ ABSL_GUARDED_BY(mu_);  // most recent first; loaded entries only
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;      // loaded and loading
};

}  // namespace sluice::server
