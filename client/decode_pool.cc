#include "client/decode_pool.h"

#include <algorithm>
#include <utility>

namespace sluice::client {

DecodePool::DecodePool(size_t num_threads) {
  if (num_threads == 0) {
    num_threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMaxDefaultThreads);
  }
  num_threads = std::min(num_threads, kMaxThreads);
  for (size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

DecodePool::~DecodePool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void DecodePool::Post(bool urgent, std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  (urgent ? urgent_ : others_).push_back(std::move(task));
}

void DecodePool::OnDecoded(codec::Level level, uint64_t bytes, adapt::TimeUs elapsed_us) {
  if (bytes == 0) return;
  const double us_per_byte = static_cast<double>(elapsed_us) / static_cast<double>(bytes);
  absl::MutexLock lock(&mutex_);
  Speed& speed = speeds_[level];
  speed.samples = std::min(speed.samples + 1, kSamples);
  speed.us_per_byte += (us_per_byte - speed.us_per_byte) / speed.samples;
}

adapt::TimeUs DecodePool::DecodeUs(codec::Level level, uint64_t bytes) const {
  absl::MutexLock lock(&mutex_);
  const auto found = speeds_.find(level);
  double us_per_byte = found == speeds_.end() ? 0 : found->second.us_per_byte;
  if (found == speeds_.end()) {
    for (const auto& [other, speed] : speeds_) {
      us_per_byte = std::max(us_per_byte, speed.us_per_byte);
    }
  }
  return static_cast<adapt::TimeUs>(us_per_byte * static_cast<double>(bytes) /
                                    static_cast<double>(threads_.size()));
}

void DecodePool::Run() {
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &DecodePool::HasWork));
      if (stopping_) return;
      std::deque<std::function<void()>>& queue = urgent_.empty() ? others_ : urgent_;
      task = std::move(queue.front());
      queue.pop_front();
    }
    task();
  }
}

}  // namespace sluice::client
