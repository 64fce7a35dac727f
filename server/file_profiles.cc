// The profiles of a FileStore: profiles/<id, hex>.
#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"
#include "server/file_store.h"
#include "server/profile_verifier.h"

namespace sluice::server {

namespace fs = std::filesystem;

namespace {

class FileProfileReader : public ProfileReader {
 public:
  FileProfileReader(ProfilePtr profile, UniqueFd fd, std::string path)
      : profile_(std::move(profile)), fd_(std::move(fd)), path_(std::move(path)) {}

  const ProfilePtr& profile() const override { return profile_; }
  absl::Status Read(uint64_t offset, std::span<std::byte> out) const override {
    return ReadAt(fd_.get(), path_, offset, out);
  }

 private:
  const ProfilePtr profile_;
  const UniqueFd fd_;
  const std::string path_;
};

}  // namespace

// A profile on its way in: a temporary file that is verified while it grows.
class FileProfilePut : public PutSession {
 public:
  FileProfilePut(FileStore* store, const Digest& id, uint64_t total_bytes, UniqueFd fd,
                 std::string path)
      : store_(store), verifier_(id, total_bytes), fd_(std::move(fd)), path_(std::move(path)) {}
  ~FileProfilePut() override {
    if (placed_) return;
    Files::System().Remove(path_).IgnoreError();  // as FilePut does
    store_->profiles_.Release(verifier_.total_bytes());
  }

  absl::Status Append(std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(verifier_.Append(bytes));
    return store_->files_.Write(fd_.get(), path_, bytes);
  }

  absl::StatusOr<CommitResult> Commit() override {
    RETURN_IF_ERROR(verifier_.Finish());
    RETURN_IF_ERROR(store_->files_.Sync(fd_.get(), path_));
    auto profile = std::make_shared<const StoredProfile>(
        StoredProfile{verifier_.id(), verifier_.total_bytes(), {}});
    ASSIGN_OR_RETURN(const CommitResult result, store_->PlaceProfile(std::move(profile), path_));
    placed_ = result == CommitResult::kStored;
    return result;
  }

 private:
  FileStore* const store_;
  ProfileVerifier verifier_;
  const UniqueFd fd_;
  const std::string path_;
  bool placed_ = false;
};

std::string FileStore::ProfileFolder() const {
  return absl::StrCat(options_.data_dir, "/profiles");
}

std::string FileStore::ProfilePath(const Digest& id) const {
  return absl::StrCat(ProfileFolder(), "/", codec::DigestHex(id));
}

absl::StatusOr<std::unique_ptr<PutSession>> FileStore::MakeProfileSession(const Digest& id,
                                                                          uint64_t total_bytes) {
  const std::string path = NewTemporary();
  ASSIGN_OR_RETURN(UniqueFd fd, files_.Create(path));
  return std::make_unique<FileProfilePut>(this, id, total_bytes, std::move(fd), path);
}

absl::StatusOr<CommitResult> FileStore::PlaceProfile(ProfilePtr profile,
                                                     const std::string& temporary) {
  absl::MutexLock lock(&profile_mu_);
  if (profiles_.FindAndKeep(profile->id, KeptUntil()) != nullptr) {
    return CommitResult::kAlreadyStored;
  }
  const std::string path = ProfilePath(profile->id);
  RETURN_IF_ERROR(files_.Rename(temporary, path));
  if (absl::Status status = files_.SyncFolder(ProfileFolder()); !status.ok()) {
    files_.Remove(path).IgnoreError();
    return status;
  }
  const uint64_t bytes = profile->bytes;
  profiles_.Insert(std::move(profile), bytes, KeptUntil());
  return CommitResult::kStored;
}

absl::StatusOr<std::shared_ptr<const ProfileReader>> FileStore::OpenProfile(const Digest& id) {
  absl::MutexLock lock(&profile_mu_);
  ProfilePtr profile = profiles_.Find(id);
  if (profile == nullptr) return NoProfile(id);
  const std::string path = ProfilePath(id);
  auto fd = OpenForReading(path);
  if (absl::IsNotFound(fd.status())) {
    profiles_.Remove(profile);
    options_.warn(absl::StrCat("event=profile_vanished path=\"", path, "\""));
    return NoProfile(id);
  }
  RETURN_IF_ERROR(fd.status());
  return std::make_shared<FileProfileReader>(std::move(profile), *std::move(fd), path);
}

void FileStore::RemoveDamagedProfile(const ProfilePtr& profile) {
  absl::MutexLock lock(&profile_mu_);
  if (profiles_.Remove(profile)) {
    Quarantine(ProfilePath(profile->id), "its SHA-256 is not its name");
  }
}

void FileStore::DropUnusedProfiles() {
  absl::MutexLock lock(&profile_mu_);
  for (const Digest& id : TakeUnusedProfiles()) {
    const absl::Status status = files_.Remove(ProfilePath(id));
    if (!status.ok()) {
      options_.warn(absl::StrCat("event=remove_profile_failed error=\"", status.message(), "\""));
    }
  }
}

absl::Status FileStore::ScanProfiles() {
  std::error_code error;
  fs::directory_iterator at(ProfileFolder(), error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string path = at->path().string();
    const auto id = codec::DigestFromHex(at->path().filename().string());
    const auto fd = OpenForReading(path);
    if (!id.ok() || ProfilePath(*id) != path || absl::IsDataLoss(fd.status())) {
      Quarantine(path, "it is not where a profile of this name belongs");
      continue;
    }
    if (!fd.ok()) {
      options_.warn(absl::StrCat("event=profile_unreadable error=\"", fd.status().message(), "\""));
      continue;
    }
    ASSIGN_OR_RETURN(const FileFacts facts, GetFileFacts(fd->get(), path));
    auto profile = std::make_shared<const StoredProfile>(StoredProfile{*id, facts.bytes, {}});
    // What is there already may be more than a quota that has been lowered.
    profiles_.Insert(std::move(profile), 0, absl::InfinitePast());
  }
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("list ", ProfileFolder(), ": ", error.message()));
}

}  // namespace sluice::server
