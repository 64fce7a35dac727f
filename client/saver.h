// Encodes contexts and stores them on the server, behind the engine's back.
//
// Thread-safe. Jobs wait in a bounded queue; each is run by one of a fixed number of threads, one
// chunk after the other, so that a thread holds one chunk's planes and its container and no more,
// however long the context. Chunks that the server has already are neither read nor encoded.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/pool_registry.h"
#include "client/remote_store.h"
#include "codec/chunk_key.h"
#include "codec/encoder.h"

namespace sluice::client {

struct SaveJob {
  std::shared_ptr<RegisteredPool> pool;
  codec::NamespaceDescriptor descriptor;
  std::vector<codec::Digest> chunk_keys;
  std::vector<uint32_t> block_ids;  // of all chunks, in context order
  bool lossless = false;
  std::string request_id;
};

enum class SaveState { kCopied, kStored, kFailed };

struct SaveProgress {
  SaveState state = SaveState::kFailed;
  uint32_t stored_chunks = 0;
  uint32_t existing_chunks = 0;
  uint64_t bytes = 0;                // encoded bytes sent
  uint32_t unusual_rate_chunks = 0;  // of those encoded; see codec/rate_check.h
  std::string message;
};

// A save as its owner sees it. Thread-safe.
class SaveTicket {
 public:
  // The next change of state: kCopied at most once, then kStored or kFailed, once. nullopt if none
  // comes within `timeout`.
  std::optional<SaveProgress> Next(absl::Duration timeout);

 private:
  friend class Saver;

  void Push(SaveProgress progress);

  std::atomic<bool> cancelled_ = false;
  absl::Mutex mutex_;
  std::deque<SaveProgress> changes_ ABSL_GUARDED_BY(mutex_);
};

class Saver {
 public:
  struct Config {
    size_t threads = 1;
    size_t max_saves = 64;                           // waiting or running
    absl::Duration put_timeout = absl::Seconds(10);  // for one chunk, and for the lookup
    absl::Duration profile_timeout = kMaxCallTime;   // to get the profile, and to put it
  };

  Saver(std::shared_ptr<RemoteStore> store, Config config);
  // Ends what is running at the next chunk.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // ResourceExhausted when the queue is full, Unavailable when stopping.
  absl::StatusOr<std::shared_ptr<SaveTicket>> Enqueue(SaveJob job);
  // Ends the save with kFailed unless its blocks have been copied already; at once if it is still
  // waiting.
  void Cancel(const std::shared_ptr<SaveTicket>& ticket);
  // Takes no more jobs and waits for those that are there; at `deadline` the rest fail, each at its
  // next chunk. True if all had ended by then.
  bool Drain(absl::Time deadline);
  size_t size() const;
  // Of all saves.
  uint64_t unusual_rate_chunks() const { return unusual_rate_chunks_.load(); }

 private:
  struct Entry {
    SaveJob job;
    std::shared_ptr<SaveTicket> ticket;
  };

  void Work();
  void Run(const Entry& entry);
  // Saves the chunks that are missing; fills in `progress` as it goes.
  absl::Status SaveMissing(const Entry& entry, SaveProgress& progress);
  absl::Status CheckWanted(const Entry& entry, bool copied) const;
  // Counts a chunk whose rate is unusual for its profile.
  void CheckRate(const codec::Profile& profile, const codec::EncodedChunk& chunk,
                 SaveProgress& progress);

  const std::shared_ptr<RemoteStore> store_;
  const Config config_;
  mutable absl::Mutex mutex_;
  std::deque<Entry> queue_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> abandon_ = false;
  std::atomic<uint64_t> unusual_rate_chunks_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::client
