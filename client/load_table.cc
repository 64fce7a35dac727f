#include "client/load_table.h"

#include <algorithm>

namespace sluice::client {

std::unique_ptr<LoadTable::Entry> LoadTable::Enter(uint32_t chunk_tokens, Engine engine) {
  absl::MutexLock lock(&mutex_);
  if (entries_.size() >= max_loads_) return nullptr;
  const uint64_t id = ++last_id_;
  std::unique_ptr<Entry> entry(new Entry(*this, id, chunk_tokens, std::move(engine)));
  entries_[id] = entry.get();
  return entry;
}

bool LoadTable::ReportComputed(uint64_t load_id, uint32_t computed_tokens) {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(load_id);
  if (found == entries_.end()) return false;
  std::atomic<uint32_t>& known = found->second->computed_tokens_;
  known.store(std::max(known.load(), computed_tokens));
  return true;
}

size_t LoadTable::size() const {
  absl::MutexLock lock(&mutex_);
  return entries_.size();
}

void LoadTable::Leave(uint64_t id) {
  absl::MutexLock lock(&mutex_);
  entries_.erase(id);
}

}  // namespace sluice::client
