// A few threads that decode, shared by all loads of a loader, and how fast they are.
//
// Thread-safe. Urgent tasks (bases) run before the others (refinements), each kind in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "adapt/load_types.h"
#include "codec/container.h"

namespace sluice::client {

class DecodePool {
 public:
  static constexpr size_t kMaxDefaultThreads = 4;
  static constexpr size_t kMaxThreads = 256;

  // 0 threads: as many as the machine has, at most kMaxDefaultThreads.
  explicit DecodePool(size_t num_threads);
  // Waits for the tasks that run; those that wait are dropped.
  ~DecodePool();
  DecodePool(const DecodePool&) = delete;
  DecodePool& operator=(const DecodePool&) = delete;

  void Post(bool urgent, std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);
  size_t num_threads() const { return threads_.size(); }

  // A task has decoded that much output at that level in that time.
  void OnDecoded(codec::Level level, uint64_t bytes, adapt::TimeUs elapsed_us)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The time in which all threads together decode that much; of a level that is not known as of the
  // slowest that is, and 0 before anything was decoded.
  adapt::TimeUs DecodeUs(codec::Level level, uint64_t bytes) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr int kSamples = 16;  // over which a speed is smoothed

  struct Speed {
    int samples = 0;         // at most kSamples
    double us_per_byte = 0;  // of one thread
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !urgent_.empty() || !others_.empty();
  }

  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> urgent_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> others_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<codec::Level, Speed> speeds_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace sluice::client
