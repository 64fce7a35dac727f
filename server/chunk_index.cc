#include "server/chunk_index.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {

std::string ShortName(const ChunkId& id) {
  return absl::StrCat(codec::DigestHex(id.namespace_digest).substr(0, 8), "/",
                      codec::DigestHex(id.key).substr(0, 16));
}

namespace {

absl::Status NoNamespace(const Digest& digest) {
  return absl::NotFoundError(
      absl::StrCat("namespace ", codec::DigestHex(digest), " is not stored here"));
}

}  // namespace

ChunkIndex::ChunkIndex(uint64_t quota_bytes, size_t max_namespaces)
    : quota_bytes_(quota_bytes), max_namespaces_(max_namespaces) {}

ChunkIndex::OrderKey ChunkIndex::Order(const ChunkId& id, const Entry& entry) {
  const uint32_t from_end = std::numeric_limits<uint32_t>::max() - entry.header->start_token;
  return {entry.use_second, from_end, id};
}

ChunkSummary ChunkIndex::Summary(const Digest& digest, const Digest& key, const Entry& entry) {
  return {{digest, key}, entry.header, absl::FromUnixSeconds(entry.use_second), entry.pinned};
}

ChunkIndex::Entry* ChunkIndex::FindEntry(const ChunkId& id) {
  return const_cast<Entry*>(std::as_const(*this).FindEntry(id));
}

const ChunkIndex::Entry* ChunkIndex::FindEntry(const ChunkId& id) const {
  auto space = namespaces_.find(id.namespace_digest);
  if (space == namespaces_.end()) return nullptr;
  auto chunk = space->second.chunks.find(id.key);
  return chunk == space->second.chunks.end() ? nullptr : &chunk->second;
}

absl::Status ChunkIndex::AddNamespace(const Digest& digest,
                                      const codec::NamespaceDescriptor& descriptor) {
  absl::MutexLock lock(&mu_);
  if (namespaces_.contains(digest)) return absl::OkStatus();
  if (namespaces_.size() >= max_namespaces_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server holds max_namespaces = ", max_namespaces_, " namespaces"));
  }
  namespaces_[digest] = {descriptor, {}, 0};
  return absl::OkStatus();
}

bool ChunkIndex::HasNamespace(const Digest& digest) const {
  absl::MutexLock lock(&mu_);
  return namespaces_.contains(digest);
}

std::vector<Digest> ChunkIndex::RemoveEmptyNamespaces() {
  absl::MutexLock lock(&mu_);
  std::vector<Digest> removed;
  for (const auto& [digest, space] : namespaces_) {
    if (space.chunks.empty()) removed.push_back(digest);
  }
  for (const Digest& digest : removed) namespaces_.erase(digest);
  return removed;
}

size_t ChunkIndex::namespace_count() const {
  absl::MutexLock lock(&mu_);
  return namespaces_.size();
}

absl::StatusOr<std::vector<ChunkId>> ChunkIndex::Reserve(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  const uint64_t fixed = pinned_bytes_ + reserved_bytes_;
  if (fixed > quota_bytes_ || bytes > quota_bytes_ - fixed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("quota of ", quota_bytes_, " bytes is full: ", bytes, " bytes wanted, ",
                     pinned_bytes_, " pinned, ", reserved_bytes_, " reserved by puts in progress"));
  }
  reserved_bytes_ += bytes;
  return EvictUntil(quota_bytes_ - reserved_bytes_);
}

void ChunkIndex::Release(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  reserved_bytes_ -= bytes;
}

std::vector<ChunkId> ChunkIndex::EvictToQuota() {
  absl::MutexLock lock(&mu_);
  return EvictUntil(quota_bytes_ - std::min(quota_bytes_, reserved_bytes_));
}

std::vector<ChunkId> ChunkIndex::EvictUntil(uint64_t allowed_bytes) {
  std::vector<ChunkId> evicted;
  while (used_bytes_ > allowed_bytes && !evictable_.empty()) {
    const ChunkId id = std::get<ChunkId>(*evictable_.begin());
    RemoveLocked(id);
    evicted.push_back(id);
    ++evicted_chunks_;
  }
  return evicted;
}

bool ChunkIndex::Insert(const ChunkId& id, HeaderPtr header, uint64_t reserved_bytes,
                        absl::Time used_at, const std::optional<Digest>& parent) {
  absl::MutexLock lock(&mu_);
  Namespace& space = namespaces_[id.namespace_digest];
  auto [at, inserted] = space.chunks.try_emplace(id.key);
  if (!inserted) return false;
  const uint64_t bytes = header->total_bytes();
  at->second = {std::move(header), bytes, absl::ToUnixSeconds(used_at), false, parent};
  evictable_.insert(Order(id, at->second));
  space.bytes += bytes;
  used_bytes_ += bytes;
  reserved_bytes_ -= reserved_bytes;
  ++chunks_;
  return true;
}

HeaderPtr ChunkIndex::Find(const ChunkId& id) const {
  absl::MutexLock lock(&mu_);
  const Entry* entry = FindEntry(id);
  return entry == nullptr ? nullptr : entry->header;
}

std::vector<HeaderPtr> ChunkIndex::Lookup(const Digest& namespace_digest,
                                          std::span<const Digest> keys) {
  absl::MutexLock lock(&mu_);
  std::vector<HeaderPtr> found;
  found.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    Entry* entry = FindEntry({namespace_digest, keys[i]});
    found.push_back(entry == nullptr ? nullptr : entry->header);
    if (entry == nullptr || i == 0 || entry->parent || found[i - 1] == nullptr) continue;
    const codec::ChunkHeader& before = *found[i - 1];
    if (before.start_token + before.num_tokens == entry->header->start_token) {
      entry->parent = keys[i - 1];
    }
  }
  return found;
}

HeaderPtr ChunkIndex::Remove(const ChunkId& id) {
  absl::MutexLock lock(&mu_);
  return RemoveLocked(id);
}

HeaderPtr ChunkIndex::RemoveLocked(const ChunkId& id) {
  auto space = namespaces_.find(id.namespace_digest);
  if (space == namespaces_.end()) return nullptr;
  auto chunk = space->second.chunks.find(id.key);
  if (chunk == space->second.chunks.end()) return nullptr;
  const Entry& entry = chunk->second;
  HeaderPtr header = entry.header;
  if (entry.pinned) {
    pinned_bytes_ -= entry.bytes;
  } else {
    evictable_.erase(Order(id, entry));
  }
  space->second.bytes -= entry.bytes;
  used_bytes_ -= entry.bytes;
  --chunks_;
  space->second.chunks.erase(chunk);
  return header;
}

bool ChunkIndex::Raise(const ChunkId& id, Entry& entry, int64_t second) {
  if (entry.use_second >= second) return false;
  if (!entry.pinned) evictable_.erase(Order(id, entry));
  entry.use_second = second;
  if (!entry.pinned) evictable_.insert(Order(id, entry));
  return true;
}

std::vector<ChunkId> ChunkIndex::Use(const ChunkId& id, absl::Time at) {
  const int64_t second = absl::ToUnixSeconds(at);
  absl::MutexLock lock(&mu_);
  std::vector<ChunkId> changed;
  ChunkId current = id;
  Entry* entry = FindEntry(current);
  if (entry == nullptr) return changed;
  if (Raise(current, *entry, second)) changed.push_back(current);
  // Ancestors were used at least as recently as their descendants, so the walk ends at the first
  // one that is recent enough; it ends anyway because start tokens fall.
  while (entry->parent) {
    current.key = *entry->parent;
    Entry* parent = FindEntry(current);
    if (parent == nullptr || parent->header->start_token >= entry->header->start_token) break;
    if (!Raise(current, *parent, second)) break;
    changed.push_back(current);
    entry = parent;
  }
  return changed;
}

void ChunkIndex::SetPinned(const ChunkId& id, bool pinned) {
  absl::MutexLock lock(&mu_);
  Entry* entry = FindEntry(id);
  if (entry == nullptr || entry->pinned == pinned) return;
  entry->pinned = pinned;
  if (pinned) {
    evictable_.erase(Order(id, *entry));
    pinned_bytes_ += entry->bytes;
  } else {
    evictable_.insert(Order(id, *entry));
    pinned_bytes_ -= entry->bytes;
  }
}

std::vector<Digest> ChunkIndex::PinnedKeys(const Digest& namespace_digest) const {
  absl::MutexLock lock(&mu_);
  std::vector<Digest> keys;
  auto space = namespaces_.find(namespace_digest);
  if (space == namespaces_.end()) return keys;
  for (const auto& [key, entry] : space->second.chunks) {
    if (entry.pinned) keys.push_back(key);
  }
  return keys;
}

absl::StatusOr<std::vector<ChunkSummary>> ChunkIndex::Select(const Selection& selection,
                                                             absl::Time now) const {
  absl::MutexLock lock(&mu_);
  auto space = namespaces_.find(selection.namespace_digest);
  if (space == namespaces_.end()) return NoNamespace(selection.namespace_digest);
  std::vector<ChunkSummary> selected;
  auto add = [&](const Digest& key, const Entry& entry) {
    if (now - absl::FromUnixSeconds(entry.use_second) < selection.idle_at_least) return;
    selected.push_back(Summary(selection.namespace_digest, key, entry));
  };
  if (selection.keys.empty()) {
    for (const auto& [key, entry] : space->second.chunks) add(key, entry);
    return selected;
  }
  absl::btree_set<Digest> keys(selection.keys.begin(), selection.keys.end());
  for (const Digest& key : keys) {
    auto chunk = space->second.chunks.find(key);
    if (chunk != space->second.chunks.end()) add(key, chunk->second);
  }
  return selected;
}

std::vector<NamespaceSummary> ChunkIndex::ListNamespaces() const {
  std::vector<NamespaceSummary> list;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [digest, space] : namespaces_) {
      if (space.chunks.empty()) continue;
      list.push_back({digest, space.descriptor, space.chunks.size(), space.bytes});
    }
  }
  std::sort(list.begin(), list.end(),
            [](const auto& a, const auto& b) { return a.digest < b.digest; });
  return list;
}

absl::StatusOr<std::vector<ChunkSummary>> ChunkIndex::ListChunks(const Digest& namespace_digest,
                                                                 const std::optional<Digest>& after,
                                                                 size_t limit) const {
  absl::MutexLock lock(&mu_);
  auto space = namespaces_.find(namespace_digest);
  if (space == namespaces_.end()) return NoNamespace(namespace_digest);
  const auto& chunks = space->second.chunks;
  std::vector<ChunkSummary> list;
  for (auto at = after ? chunks.upper_bound(*after) : chunks.begin();
       at != chunks.end() && list.size() < limit; ++at) {
    list.push_back(Summary(namespace_digest, at->first, at->second));
  }
  return list;
}

absl::flat_hash_set<Digest> ChunkIndex::ProfileIds() const {
  absl::MutexLock lock(&mu_);
  absl::flat_hash_set<Digest> ids;
  for (const auto& [digest, space] : namespaces_) ids.insert(space.descriptor.profile_id);
  return ids;
}

StoreUsage ChunkIndex::Usage() const {
  absl::MutexLock lock(&mu_);
  StoreUsage usage;
  for (const auto& [digest, space] : namespaces_) usage.namespaces += !space.chunks.empty();
  usage.chunks = chunks_;
  usage.bytes = used_bytes_;
  usage.reserved_bytes = reserved_bytes_;
  usage.quota_bytes = quota_bytes_;
  usage.evicted_chunks = evicted_chunks_;
  return usage;
}

}  // namespace sluice::server
