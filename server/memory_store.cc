#include "server/memory_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"
#include "server/container_verifier.h"
#include "server/profile_verifier.h"

namespace sluice::server {

namespace {

class MemoryReader : public ChunkReader {
 public:
  MemoryReader(HeaderPtr header, std::string container)
      : header_(std::move(header)), container_(std::move(container)) {}

  const HeaderPtr& header() const override { return header_; }
  std::span<const std::byte> bytes() const override { return std::as_bytes(std::span(container_)); }
  absl::Status Read(uint64_t offset, std::span<std::byte> out) const override {
    std::ranges::copy(bytes().subspan(offset, out.size()), out.begin());
    return absl::OkStatus();
  }

 private:
  const HeaderPtr header_;
  const std::string container_;
};

class MemoryProfileReader : public ProfileReader {
 public:
  explicit MemoryProfileReader(ProfilePtr profile) : profile_(std::move(profile)) {}

  const ProfilePtr& profile() const override { return profile_; }
  absl::Status Read(uint64_t offset, std::span<std::byte> out) const override {
    std::ranges::copy(std::as_bytes(std::span(profile_->content)).subspan(offset, out.size()),
                      out.begin());
    return absl::OkStatus();
  }

 private:
  const ProfilePtr profile_;
};

}  // namespace

ReaderPtr MakeMemoryReader(HeaderPtr header, std::string container) {
  return std::make_shared<MemoryReader>(std::move(header), std::move(container));
}

class MemoryPut : public PutSession {
 public:
  MemoryPut(MemoryStore* store, Announcement announcement)
      : store_(store),
        announcement_(std::move(announcement)),
        verifier_(announcement_.id, announcement_.descriptor, announcement_.total_bytes) {}
  ~MemoryPut() override {
    if (!placed_) store_->index_.Release(announcement_.total_bytes);
  }

  absl::Status Append(std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(verifier_.Append(bytes));
    container_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return absl::OkStatus();
  }

  absl::StatusOr<CommitResult> Commit() override {
    ASSIGN_OR_RETURN(HeaderPtr header, verifier_.Finish());
    ASSIGN_OR_RETURN(const CommitResult result,
                     store_->Place(announcement_, std::move(header), std::move(container_)));
    placed_ = result == CommitResult::kStored;
    return result;
  }

 private:
  MemoryStore* const store_;
  const Announcement announcement_;
  ContainerVerifier verifier_;
  std::string container_;
  bool placed_ = false;  // then the reservation has become the chunk's bytes
};

class MemoryProfilePut : public PutSession {
 public:
  MemoryProfilePut(MemoryStore* store, const Digest& id, uint64_t total_bytes)
      : store_(store), verifier_(id, total_bytes) {}
  ~MemoryProfilePut() override {
    if (!placed_) store_->profiles_.Release(verifier_.total_bytes());
  }

  absl::Status Append(std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(verifier_.Append(bytes));
    content_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return absl::OkStatus();
  }

  absl::StatusOr<CommitResult> Commit() override {
    RETURN_IF_ERROR(verifier_.Finish());
    auto profile = std::make_shared<const StoredProfile>(
        StoredProfile{verifier_.id(), verifier_.total_bytes(), std::move(content_)});
    placed_ =
        store_->profiles_.Insert(std::move(profile), verifier_.total_bytes(), store_->KeptUntil());
    return placed_ ? CommitResult::kStored : CommitResult::kAlreadyStored;
  }

 private:
  MemoryStore* const store_;
  ProfileVerifier verifier_;
  std::string content_;
  bool placed_ = false;  // then the reservation has become the profile's bytes
};

MemoryStore::MemoryStore(uint64_t quota_bytes, size_t max_namespaces, Clock clock)
    : IndexedStore({quota_bytes, kProfileQuotaBytes, max_namespaces}, std::move(clock)) {}

absl::StatusOr<ReaderPtr> MemoryStore::Open(const ChunkId& id) {
  absl::MutexLock lock(&mu_);
  auto at = chunks_.find(id);
  if (at == chunks_.end()) {
    return absl::NotFoundError(absl::StrCat("chunk ", ShortName(id), " is not stored"));
  }
  return at->second;
}

void MemoryStore::RemoveDamaged(const ChunkId& id, const HeaderPtr& header) {
  absl::MutexLock lock(&mu_);
  if (index_.Find(id) != header) return;
  index_.Remove(id);
  chunks_.erase(id);
}

absl::StatusOr<std::unique_ptr<PutSession>> MemoryStore::MakeSession(Announcement announcement) {
  return std::make_unique<MemoryPut>(this, std::move(announcement));
}

absl::StatusOr<std::unique_ptr<PutSession>> MemoryStore::MakeProfileSession(const Digest& id,
                                                                            uint64_t total_bytes) {
  return std::make_unique<MemoryProfilePut>(this, id, total_bytes);
}

absl::StatusOr<std::shared_ptr<const ProfileReader>> MemoryStore::OpenProfile(const Digest& id) {
  ProfilePtr profile = profiles_.Find(id);
  if (profile == nullptr) return NoProfile(id);
  return std::make_shared<MemoryProfileReader>(std::move(profile));
}

absl::StatusOr<bool> MemoryStore::RemoveChunk(const ChunkId& id) {
  absl::MutexLock lock(&mu_);
  chunks_.erase(id);
  return index_.Remove(id) != nullptr;
}

void MemoryStore::RemoveEvicted(const ChunkId& id) {
  absl::MutexLock lock(&mu_);
  if (index_.Find(id) == nullptr) chunks_.erase(id);
}

void MemoryStore::DropEmptyNamespaces() {
  absl::MutexLock lock(&mu_);
  index_.RemoveEmptyNamespaces();
}

absl::StatusOr<CommitResult> MemoryStore::Place(const Announcement& announcement, HeaderPtr header,
                                                std::string container) {
  const ChunkId& id = announcement.id;
  const absl::Time now = clock_();
  absl::MutexLock lock(&mu_);
  if (index_.Find(id) != nullptr) return CommitResult::kAlreadyStored;
  if (!index_.HasNamespace(id.namespace_digest)) index_.RemoveEmptyNamespaces();
  RETURN_IF_ERROR(index_.AddNamespace(id.namespace_digest, announcement.descriptor));
  chunks_[id] = MakeMemoryReader(header, std::move(container));
  index_.Insert(id, std::move(header), announcement.total_bytes, now, announcement.parent_key);
  index_.Use(id, now);
  return CommitResult::kStored;
}

}  // namespace sluice::server
