#include "server/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"
#include "server/file_put.h"

namespace sluice::server {

namespace fs = std::filesystem;

namespace {

class FileReader : public ChunkReader {
 public:
  FileReader(HeaderPtr header, UniqueFd fd, std::string path)
      : header_(std::move(header)), fd_(std::move(fd)), path_(std::move(path)) {}

  const HeaderPtr& header() const override { return header_; }
  absl::Status Read(uint64_t offset, std::span<std::byte> out) const override {
    return ReadAt(fd_.get(), path_, offset, out);
  }

 private:
  const HeaderPtr header_;
  const UniqueFd fd_;
  const std::string path_;
};

}  // namespace

FileStore::FileStore(FileStoreOptions options)
    : IndexedStore({options.quota_bytes, options.profile_quota_bytes, options.max_namespaces},
                   options.clock),
      options_(std::move(options)),
      files_(*options_.files) {}

absl::StatusOr<std::unique_ptr<FileStore>> FileStore::Open(FileStoreOptions options) {
  std::unique_ptr<FileStore> store(new FileStore(std::move(options)));
  RETURN_IF_ERROR(store->files_.MakeFolder(store->options_.data_dir));
  RETURN_IF_ERROR(store->Lock());
  RETURN_IF_ERROR(store->MakeFolders());
  RETURN_IF_ERROR(store->Scan());
  return store;
}

absl::Status FileStore::Lock() {
  const std::string path = absl::StrCat(options_.data_dir, "/lock");
  lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640));
  if (!lock_.valid()) return ErrnoStatus("open", path);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return ErrnoStatus("lock", path);
  return absl::FailedPreconditionError(
      absl::StrCat("data_dir ", options_.data_dir, " is in use by another server"));
}

absl::Status FileStore::MakeFolders() {
  const std::string temporary = absl::StrCat(options_.data_dir, "/tmp");
  RETURN_IF_ERROR(files_.MakeFolder(temporary));
  RETURN_IF_ERROR(files_.MakeFolder(absl::StrCat(options_.data_dir, "/quarantine")));
  RETURN_IF_ERROR(files_.MakeFolder(ProfileFolder()));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(temporary, error)) {
    std::error_code removal;
    if (fs::is_directory(entry.symlink_status(removal))) {
      fs::remove_all(entry.path(), removal);  // not ours, but in the way of nothing
    } else {
      RETURN_IF_ERROR(files_.Remove(entry.path().string()));
    }
  }
  if (error) return absl::UnavailableError(absl::StrCat("list ", temporary, ": ", error.message()));
  return absl::OkStatus();
}

std::string FileStore::NamespaceFolder(const Digest& digest) const {
  return absl::StrCat(options_.data_dir, "/", codec::DigestHex(digest));
}

std::string FileStore::ShardFolder(const ChunkId& id) const {
  return absl::StrCat(NamespaceFolder(id.namespace_digest), "/",
                      codec::DigestHex(id.key).substr(0, 2));
}

std::string FileStore::ChunkPath(const ChunkId& id) const {
  return absl::StrCat(ShardFolder(id), "/", codec::DigestHex(id.key), ".chunk");
}

std::string FileStore::NewTemporary() {
  return absl::StrCat(options_.data_dir, "/tmp/", next_temporary_.fetch_add(1));
}

absl::StatusOr<ReaderPtr> FileStore::Open(const ChunkId& id) {
  const std::string path = ChunkPath(id);
  absl::MutexLock lock(&Stripe(id));
  HeaderPtr header = index_.Find(id);
  if (header == nullptr) {
    return absl::NotFoundError(absl::StrCat("chunk ", ShortName(id), " is not stored"));
  }
  auto fd = OpenForReading(path);
  if (absl::IsNotFound(fd.status())) {
    index_.Remove(id);
    options_.warn(absl::StrCat("event=chunk_vanished path=\"", path, "\""));
  }
  RETURN_IF_ERROR(fd.status());
  return std::make_shared<FileReader>(std::move(header), *std::move(fd), path);
}

void FileStore::RemoveDamaged(const ChunkId& id, const HeaderPtr& header) {
  absl::MutexLock lock(&Stripe(id));
  if (index_.Find(id) != header) return;
  index_.Remove(id);
  Quarantine(ChunkPath(id), "a checksum does not match");
}

absl::StatusOr<std::unique_ptr<PutSession>> FileStore::MakeSession(Announcement announcement) {
  const std::string path = NewTemporary();
  ASSIGN_OR_RETURN(UniqueFd fd, files_.Create(path));
  return std::make_unique<FilePut>(this, std::move(announcement), std::move(fd), path);
}

absl::StatusOr<bool> FileStore::RemoveChunk(const ChunkId& id) {
  absl::MutexLock lock(&Stripe(id));
  if (index_.Remove(id) == nullptr) return false;
  RETURN_IF_ERROR(files_.Remove(ChunkPath(id)));
  return true;
}

void FileStore::RemoveEvicted(const ChunkId& id) {
  absl::MutexLock lock(&Stripe(id));
  // Another put may have brought the key back since it left the index; then the file is the new
  // one.
  if (index_.Find(id) != nullptr) return;
  const absl::Status status = files_.Remove(ChunkPath(id));
  if (!status.ok())
    options_.warn(absl::StrCat("event=evict_failed error=\"", status.message(), "\""));
}

void FileStore::PersistUse(const ChunkId& id, absl::Time at) {
  // Only the order of eviction after a restart depends on it, so a failure is not worth a message.
  SetFileTime(ChunkPath(id), absl::FromUnixSeconds(absl::ToUnixSeconds(at))).IgnoreError();
}

absl::Status FileStore::PersistPins(const Digest& namespace_digest) {
  absl::ReaderMutexLock tree(&tree_mu_);
  absl::MutexLock lock(&namespace_mu_);
  if (!index_.HasNamespace(namespace_digest)) return absl::OkStatus();
  std::string text;
  for (const Digest& key : index_.PinnedKeys(namespace_digest)) {
    absl::StrAppend(&text, codec::DigestHex(key), "\n");
  }
  const std::string folder = NamespaceFolder(namespace_digest);
  return files_.WriteWhole(NewTemporary(), folder, folder + "/pins", text);
}

void FileStore::DropEmptyNamespaces() {
  absl::MutexLock tree(&tree_mu_);
  for (const Digest& digest : index_.RemoveEmptyNamespaces()) {
    std::error_code error;
    fs::remove_all(NamespaceFolder(digest), error);
    if (error) {
      options_.warn(absl::StrCat("event=remove_namespace_failed path=\"", NamespaceFolder(digest),
                                 "\" error=\"", error.message(), "\""));
    }
  }
}

absl::Status FileStore::EnsureNamespace(const Announcement& announcement) {
  const Digest& digest = announcement.id.namespace_digest;
  absl::MutexLock lock(&namespace_mu_);
  if (index_.HasNamespace(digest)) return absl::OkStatus();
  const std::string folder = NamespaceFolder(digest);
  RETURN_IF_ERROR(files_.MakeFolder(folder));
  RETURN_IF_ERROR(files_.WriteWhole(NewTemporary(), folder, folder + "/namespace",
                                    codec::EncodeNamespace(announcement.descriptor)));
  return index_.AddNamespace(digest, announcement.descriptor);
}

absl::StatusOr<CommitResult> FileStore::Place(const Announcement& announcement, HeaderPtr header,
                                              const std::string& temporary, absl::Time now) {
  const ChunkId& id = announcement.id;
  if (!index_.HasNamespace(id.namespace_digest) &&
      index_.namespace_count() >= options_.max_namespaces) {
    DropEmptyNamespaces();
  }
  absl::ReaderMutexLock tree(&tree_mu_);
  RETURN_IF_ERROR(EnsureNamespace(announcement));
  {
    absl::MutexLock lock(&Stripe(id));
    if (index_.Find(id) != nullptr) return CommitResult::kAlreadyStored;
    RETURN_IF_ERROR(files_.MakeFolder(ShardFolder(id)));
    const std::string path = ChunkPath(id);
    RETURN_IF_ERROR(files_.Rename(temporary, path));
    if (absl::Status status = files_.SyncFolder(ShardFolder(id)); !status.ok()) {
      files_.Remove(path).IgnoreError();
      return status;
    }
    index_.Insert(id, std::move(header), announcement.total_bytes, now, announcement.parent_key);
  }
  Use(id, now);
  PersistUse(id, now);
  return CommitResult::kStored;
}

}  // namespace sluice::server
