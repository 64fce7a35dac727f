// The loads that are running: how many there may be, and what happens to them from outside.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "client/loader.h"

namespace sluice::client {

class LoadTable {
 public:
  // The engine behind a load. Called for as long as the load's entry lives.
  struct Engine {
    std::function<bool()> abandoned;  // polled; true: it wants no more of the load
    // It is to compute this chunk. From the thread that loads.
    std::function<void(uint32_t)> compute;
    std::function<adapt::ComputePace()> pace;
  };

  // A running load; leaves the table when destroyed, which must be before the table is.
  class Entry final : public LoadControl {
   public:
    ~Entry() override { table_.Leave(id_); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    uint64_t id() const { return id_; }
    bool cancelled() const override { return table_.stopping() || engine_.abandoned(); }
    uint32_t computed_chunks() const override { return computed_tokens_.load() / chunk_tokens_; }
    adapt::ComputePace compute_pace() const override { return engine_.pace(); }
    void OnCompute(uint32_t chunk_index) override { engine_.compute(chunk_index); }

   private:
    friend class LoadTable;

    Entry(LoadTable& table, uint64_t id, uint32_t chunk_tokens, Engine engine)
        : table_(table), id_(id), chunk_tokens_(chunk_tokens), engine_(std::move(engine)) {}

    LoadTable& table_;
    const uint64_t id_;
    const uint32_t chunk_tokens_;
    const Engine engine_;
    std::atomic<uint32_t> computed_tokens_ = 0;
  };

  explicit LoadTable(size_t max_loads) : max_loads_(max_loads) {}

  // nullptr when the limit is reached.
  std::unique_ptr<Entry> Enter(uint32_t chunk_tokens, Engine engine);
  // False if no such load is running. A report never takes back an earlier one.
  bool ReportComputed(uint64_t load_id, uint32_t computed_tokens);
  // From now on every load is cancelled.
  void Stop() { stopping_.store(true); }
  bool stopping() const { return stopping_.load(); }
  size_t size() const;

 private:
  void Leave(uint64_t id);

  const size_t max_loads_;
  std::atomic<bool> stopping_ = false;
  mutable absl::Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, Entry*> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::client
