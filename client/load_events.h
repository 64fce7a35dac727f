// What happens to a load, for the thread that runs it: frames, decoded groups, the end of the
// stream.
//
// Thread-safe. Frames are bounded in bytes: whoever reads the stream waits while the thread that
// runs the load is behind, and so does the server in the end. The other events are few and never
// wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "adapt/load_types.h"
#include "client/remote_store.h"
#include "client/transfer_share.h"

namespace sluice::client {

// One group of a chunk was decoded and written at `step`, or not.
struct GroupDone {
  // What is not wanted any more is not told.
  enum class Result { kWritten, kDamaged, kSinkFailed, kNotWanted };

  uint32_t chunk = 0;
  uint32_t attempt = 0;  // as in the task
  size_t group = 0;
  int step = 0;
  int bad_layer = -1;  // kDamaged: the first layer that fails its checksum, -1 if none does
  Result result = Result::kWritten;
  absl::Status status;
  adapt::TimeUs at_us = 0;
};

// Bytes of an ask that another load's transfer brought; null: they will not come that way.
struct SharedBytes {
  uint32_t ask_id = 0;
  TransferShare::Pieces pieces;
};

struct StreamEnded {
  absl::Status status;
};

using LoadEvent = std::variant<FetchFrame, GroupDone, SharedBytes, StreamEnded>;

class LoadEvents {
 public:
  explicit LoadEvents(uint64_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {}

  // Waits until the frame has room (a single frame always has); drops it once closed.
  void PushFrame(FetchFrame frame) ABSL_LOCKS_EXCLUDED(mutex_);
  void Push(LoadEvent event) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends a Pop that waits, or the next one, without an event.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  // The next event; nothing at `deadline` or when woken.
  std::optional<LoadEvent> Pop(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing waits any more.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || frame_bytes_ < max_frame_bytes_;
  }
  bool HasEvent() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_ || !events_.empty(); }

  const uint64_t max_frame_bytes_;
  absl::Mutex mutex_;
  std::deque<LoadEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t frame_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::client
