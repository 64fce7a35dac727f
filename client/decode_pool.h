// A few threads that decode, shared by all loads of a loader.
//
// Thread-safe. Urgent tasks (bases) run before the others (refinements), each kind in order.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

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

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !urgent_.empty() || !others_.empty();
  }

  absl::Mutex mutex_;
  std::deque<std::function<void()>> urgent_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> others_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::client
