// Keeps the records of the last loads in a folder, a file each.
//
// Thread-safe. Never makes a load wait: a thread of its own writes what waits in a short queue, and
// what does not fit into that is dropped and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/load_record.h"

namespace sluice::client {

class RecordFolder {
 public:
  static constexpr size_t kMaxWaiting = 8;  // records, of EventLog::kMaxBytes or so each

  struct Config {
    std::string path;            // empty: nothing is kept
    uint32_t max_records = 100;  // files; the oldest go
    std::string program;         // what the records say of it
  };

  explicit RecordFolder(Config config);
  ~RecordFolder();  // when all that waits is written

  bool enabled() const { return !config_.path.empty(); }
  // Null, a load that was too large to be recorded, counts as dropped. REQUIRES: enabled().
  void Keep(std::shared_ptr<LoadRecord> record);
  // Records that could not be kept, since the start.
  uint64_t dropped() const;

 private:
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !waiting_.empty();
  }
  void Run();
  absl::Status Write(LoadRecord& record);
  void RemoveOldest() const;

  const Config config_;
  uint64_t next_file_ = 0;  // of the thread
  mutable absl::Mutex mutex_;
  std::deque<std::shared_ptr<LoadRecord>> waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::client
