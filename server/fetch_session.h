// One load: asks go in on one thread, frames come out on another. Knows no gRPC.
//
// Thread-safe. Between two frames the queue decides afresh, so a base ask overtakes a refinement
// that is being sent. Holds the asks, one frame and a reference to one chunk, whatever the
// context's size.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/ask_queue.h"
#include "server/chunk_cache.h"
#include "server/class_gate.h"
#include "server/indexed_store.h"
#include "server/store.h"

namespace sluice::server {

// As sluice.v1.FetchResult.
enum class FetchResult { kOk, kNotFound, kDamaged, kLate, kCancelled, kBusy };

// As sluice.v1.FetchFrame, without the checksum.
struct Frame {
  uint32_t ask_id = 0;
  uint64_t offset = 0;
  std::string payload;
  bool last = false;
  FetchResult result = FetchResult::kOk;
  std::string message;
  uint32_t queue_delay_us = 0;
};

class FetchSession {
 public:
  struct Options {
    Digest namespace_digest = {};
    size_t max_frame_bytes = 1 << 20;
    size_t max_asks = 1024;
    Clock clock = [] { return absl::Now(); };
    ClassGate* gate = nullptr;  // between loads; null: there are no others
  };

  // Store, cache and gate must live longer.
  FetchSession(Store* store, ChunkCache* cache, Options options);
  ~FetchSession();

  // From the reading thread. Too many asks are answered kBusy; waits while too many such answers
  // have not been taken. InvalidArgument: the id is in use.
  absl::Status AddAsk(const Ask& ask);
  void Cancel(uint32_t ask_id);
  // No more asks follow: NextFrame ends after the last answer.
  void CloseInput();
  // Ends both sides at once.
  void Abort();

  // From the writing thread: waits for the next frame; false at the end. Reuses the memory of
  // `frame`.
  bool NextFrame(Frame* frame);

  bool idle() const;  // nothing is asked or being answered

 private:
  static constexpr size_t kMaxBusyAnswers = 64;

  // Fills a frame of the ask's answer and moves the ask on; runs without the lock.
  void Serve(QueuedAsk& queued, Frame* frame);
  // Makes reader_ that of the ask's chunk; checks the layers when the answer begins.
  absl::Status Prepare(QueuedAsk& queued);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Before a refinement, bases of other loads may go first.
  void YieldToBases();
  void CountBase(int change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Store* const store_;
  ChunkCache* const cache_;
  const Options options_;
  const absl::Time opened_at_;  // the use time of every chunk of this load, see store.h

  mutable absl::Mutex mu_;
  AskQueue queue_ ABSL_GUARDED_BY(mu_);
  std::deque<uint32_t> busy_ ABSL_GUARDED_BY(mu_);  // asks to refuse
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool input_closed_ ABSL_GUARDED_BY(mu_) = false;
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
  size_t bases_ ABSL_GUARDED_BY(mu_) = 0;  // asks for them that the gate counts

  // Of the writing thread alone: the chunk of the last frame.
  std::optional<Digest> reader_key_;
  ReaderPtr reader_;
};

}  // namespace sluice::server
