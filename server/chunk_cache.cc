#include "server/chunk_cache.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"
#include "server/memory_store.h"

namespace sluice::server {

namespace {

// A segment of a chunk that bypasses the cache is at most this long, or it is not verified here but
// by the client alone: one segment is held in memory to verify it.
constexpr size_t kMaxVerifiedSegmentBytes = size_t{64} << 20;

absl::Status VerifyHeader(const codec::ChunkHeader& header, std::string_view stored) {
  return stored == codec::SerializeChunkHeader(header)
             ? absl::OkStatus()
             : absl::DataLossError("header: not the one that was stored");
}

// The header and the segments of some layers.
absl::Status VerifyLayers(const ChunkReader& reader, LayerRange layers) {
  const codec::ChunkHeader& header = *reader.header();
  std::string stored_header(header.header_bytes, '\0');
  RETURN_IF_ERROR(reader.Read(0, std::as_writable_bytes(std::span(stored_header))));
  RETURN_IF_ERROR(VerifyHeader(header, stored_header));
  std::vector<std::byte> segment;
  const size_t end = std::min(header.layers.size(), layers.first + layers.count);
  for (size_t layer = layers.first; layer < end; ++layer) {
    for (size_t group = 0; group < header.num_groups(); ++group) {
      const uint32_t bytes = header.layers[layer].segments[group].bytes;
      if (bytes > kMaxVerifiedSegmentBytes) continue;
      segment.resize(bytes);
      RETURN_IF_ERROR(reader.Read(header.SegmentOffset(layer, group), segment));
      RETURN_IF_ERROR(codec::VerifySegment(header, layer, group, segment));
    }
  }
  return absl::OkStatus();
}

}  // namespace

ChunkCache::ChunkCache(Store* store, uint64_t limit_bytes, uint64_t max_chunk_bytes)
    : store_(store),
      limit_bytes_(limit_bytes),
      max_chunk_bytes_(std::min(max_chunk_bytes, limit_bytes)) {}

absl::StatusOr<ReaderPtr> ChunkCache::Get(const ChunkId& id, LayerRange to_verify) {
  const HeaderPtr header = store_->Lookup(id.namespace_digest, {&id.key, 1}).front();
  if (header == nullptr) {
    return absl::NotFoundError(absl::StrCat("chunk ", ShortName(id), " is not stored"));
  }
  const uint64_t bytes = header->total_bytes();
  if (bytes > max_chunk_bytes_) return Bypass(id, to_verify);
  bool cached = false;
  {
    absl::MutexLock lock(&mu_);
    auto at = entries_.find(id);
    while (at != entries_.end() && at->second.reader == nullptr) {
      loaded_.Wait(&mu_);
      at = entries_.find(id);
    }
    if (at != entries_.end() && at->second.header == header) {
      lru_.splice(lru_.begin(), lru_, at->second.place);
      hits_.fetch_add(1, std::memory_order_relaxed);
      return at->second.reader;
    }
    if (at != entries_.end()) Erase(at);  // bytes of an earlier put
    cached = MakeRoom(bytes);
    if (cached) entries_.try_emplace(id, Entry{header, nullptr, bytes, lru_.end()});
  }
  return cached ? Load(id, bytes) : Bypass(id, to_verify);
}

absl::StatusOr<ReaderPtr> ChunkCache::Load(const ChunkId& id, uint64_t bytes) {
  misses_.fetch_add(1, std::memory_order_relaxed);
  auto read = [&]() -> absl::StatusOr<ReaderPtr> {
    ASSIGN_OR_RETURN(const ReaderPtr stored, store_->Open(id));
    const HeaderPtr& header = stored->header();
    // A store in memory has the bytes already; copying them would only use memory twice.
    if (!stored->bytes().empty()) return stored;
    std::string container(header->total_bytes(), '\0');
    absl::Status status = stored->Read(0, std::as_writable_bytes(std::span(container)));
    if (status.ok()) {
      status = VerifyHeader(*header, std::string_view(container).substr(0, header->header_bytes));
    }
    if (status.ok()) {
      status = codec::VerifyContainer(std::as_bytes(std::span(container))).status();
    }
    if (status.ok()) return MakeMemoryReader(header, std::move(container));
    if (absl::IsUnavailable(status)) return status;
    store_->RemoveDamaged(id, header);
    return absl::DataLossError(status.message());
  };
  absl::StatusOr<ReaderPtr> reader = read();
  absl::MutexLock lock(&mu_);
  auto at = entries_.find(id);
  if (reader.ok() && (*reader)->header()->total_bytes() == bytes) {
    lru_.push_front(id);
    at->second.header = (*reader)->header();
    at->second.reader = *reader;
    at->second.place = lru_.begin();
  } else {
    bytes_ -= at->second.bytes;
    entries_.erase(at);
  }
  loaded_.SignalAll();
  return reader;
}

absl::StatusOr<ReaderPtr> ChunkCache::Bypass(const ChunkId& id, LayerRange to_verify) {
  misses_.fetch_add(1, std::memory_order_relaxed);
  ASSIGN_OR_RETURN(ReaderPtr stored, store_->Open(id));
  if (!stored->bytes().empty()) return stored;
  const absl::Status status = VerifyLayers(*stored, to_verify);
  if (status.ok()) return stored;
  if (absl::IsUnavailable(status)) return status;
  store_->RemoveDamaged(id, stored->header());
  return absl::DataLossError(status.message());
}

bool ChunkCache::MakeRoom(uint64_t bytes) {
  while (bytes_ + bytes > limit_bytes_ && !lru_.empty()) Erase(entries_.find(lru_.back()));
  if (bytes_ + bytes > limit_bytes_) return false;
  bytes_ += bytes;
  return true;
}

void ChunkCache::Erase(absl::flat_hash_map<ChunkId, Entry>::iterator at) {
  bytes_ -= at->second.bytes;
  lru_.erase(at->second.place);
  entries_.erase(at);
}

CacheUsage ChunkCache::Usage() const {
  absl::MutexLock lock(&mu_);
  return {bytes_, limit_bytes_, hits_.load(std::memory_order_relaxed),
          misses_.load(std::memory_order_relaxed)};
}

}  // namespace sluice::server
