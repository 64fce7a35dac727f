#include "server/indexed_store.h"

#include "codec/status_macros.h"

namespace sluice::server {

std::vector<NamespaceSummary> IndexedStore::ListNamespaces() {
  std::vector<NamespaceSummary> namespaces = index_.ListNamespaces();
  profiles_.Describe(namespaces);
  return namespaces;
}

StoreUsage IndexedStore::Usage() {
  StoreUsage usage = index_.Usage();
  profiles_.Describe(usage);
  return usage;
}

void IndexedStore::Use(const ChunkId& id, absl::Time at) {
  for (const ChunkId& changed : index_.Use(id, at)) PersistUse(changed, at);
}

absl::StatusOr<uint64_t> IndexedStore::Touch(const Selection& selection) {
  const absl::Time now = clock_();
  ASSIGN_OR_RETURN(std::vector<ChunkSummary> chunks, index_.Select(selection, now));
  for (const ChunkSummary& chunk : chunks) Use(chunk.id, now);
  return chunks.size();
}

absl::StatusOr<uint64_t> IndexedStore::Pin(const Selection& selection, bool pinned) {
  ASSIGN_OR_RETURN(std::vector<ChunkSummary> chunks, index_.Select(selection, clock_()));
  for (const ChunkSummary& chunk : chunks) index_.SetPinned(chunk.id, pinned);
  RETURN_IF_ERROR(PersistPins(selection.namespace_digest));
  return chunks.size();
}

absl::StatusOr<DeleteCounts> IndexedStore::Delete(const Selection& selection, bool include_pinned) {
  ASSIGN_OR_RETURN(std::vector<ChunkSummary> chunks, index_.Select(selection, clock_()));
  DeleteCounts counts;
  bool pins_changed = false;
  for (const ChunkSummary& chunk : chunks) {
    if (chunk.pinned && !include_pinned) {
      ++counts.pinned_chunks;
      continue;
    }
    ASSIGN_OR_RETURN(const bool removed, RemoveChunk(chunk.id));
    if (!removed) continue;
    pins_changed |= chunk.pinned;
    ++counts.deleted_chunks;
    counts.deleted_bytes += chunk.header->total_bytes();
  }
  if (pins_changed) RETURN_IF_ERROR(PersistPins(selection.namespace_digest));
  if (selection.keys.empty()) {
    DropEmptyNamespaces();
    DropUnusedProfiles();
  }
  return counts;
}

absl::StatusOr<BeginPutResult> IndexedStore::BeginPut(Announcement announcement) {
  BeginPutResult result;
  // Asked for even if the chunk is there: without a profile that was lost it cannot be decoded.
  announcement.profile = profiles_.FindToUse(announcement.descriptor.profile_id);
  if (announcement.profile == nullptr) {
    result.profile_needed = true;
    return result;
  }
  if (index_.Find(announcement.id) != nullptr) {
    result.already_stored = true;
    return result;
  }
  const uint64_t bytes = announcement.total_bytes;
  ASSIGN_OR_RETURN(std::vector<ChunkId> evicted, index_.Reserve(bytes));
  for (const ChunkId& id : evicted) RemoveEvicted(id);
  auto session = MakeSession(std::move(announcement));
  if (!session.ok()) {
    index_.Release(bytes);
    return session.status();
  }
  result.session = *std::move(session);
  return result;
}

absl::StatusOr<BeginPutResult> IndexedStore::BeginPutProfile(const Digest& id,
                                                             uint64_t total_bytes) {
  BeginPutResult result;
  result.already_stored = profiles_.FindAndKeep(id, KeptUntil()) != nullptr;
  if (result.already_stored) return result;
  absl::Status reserved = profiles_.Reserve(total_bytes);
  if (!reserved.ok()) {
    DropEmptyNamespaces();
    DropUnusedProfiles();
    reserved = profiles_.Reserve(total_bytes);
  }
  RETURN_IF_ERROR(reserved);
  auto session = MakeProfileSession(id, total_bytes);
  if (!session.ok()) {
    profiles_.Release(total_bytes);
    return session.status();
  }
  result.session = *std::move(session);
  return result;
}

std::vector<Digest> IndexedStore::TakeUnusedProfiles() {
  return profiles_.RemoveUnused(clock_(), [this] { return index_.ProfileIds(); });
}

}  // namespace sluice::server
