#include "client/cli/parallel.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace sluice::cli {
namespace {

struct State {
  absl::Mutex mutex;
  absl::CondVar changed;
  size_t next = 0;
  size_t ended = 0;
  size_t running = 0;  // threads
  size_t failed_index = 0;
  absl::Status status;
};

void Work(size_t count, const std::function<absl::Status(size_t)>& work, State& state) {
  absl::MutexLock lock(&state.mutex);
  while (state.next < count && state.status.ok()) {
    const size_t index = state.next++;
    state.mutex.Unlock();
    absl::Status status = work(index);
    state.mutex.Lock();
    ++state.ended;
    if (!status.ok() && (state.status.ok() || index < state.failed_index)) {
      state.status = std::move(status);
      state.failed_index = index;
    }
    state.changed.Signal();
  }
  --state.running;
  state.changed.Signal();
}

}  // namespace

absl::Status ParallelFor(size_t count, const std::function<absl::Status(size_t)>& work,
                         const std::function<void(size_t)>& done) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  State state;
  state.running = std::min({count, cores, kMaxThreads});
  std::vector<std::thread> threads;
  for (size_t i = std::min({count, cores, kMaxThreads}); i > 0; --i) {
    threads.emplace_back([&] { Work(count, work, state); });
  }
  state.mutex.Lock();
  while (state.running > 0) {
    state.changed.Wait(&state.mutex);
    const size_t ended = state.ended;
    state.mutex.Unlock();
    if (done) done(ended);
    state.mutex.Lock();
  }
  state.mutex.Unlock();
  for (std::thread& thread : threads) thread.join();
  return state.status;
}

}  // namespace sluice::cli
