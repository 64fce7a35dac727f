#include "server/file_put.h"

#include <utility>

#include "codec/status_macros.h"

namespace sluice::server {

FilePut::FilePut(FileStore* store, Announcement announcement, UniqueFd fd, std::string path)
    : store_(store),
      announcement_(std::move(announcement)),
      fd_(std::move(fd)),
      path_(std::move(path)),
      verifier_(announcement_.id, announcement_.descriptor, announcement_.total_bytes) {}

FilePut::~FilePut() {
  if (placed_) return;
  // Not through Files: undoing must not depend on the operations that tests make fail. What cannot
  // be removed now is removed at the next start.
  Files::System().Remove(path_).IgnoreError();
  store_->index_.Release(announcement_.total_bytes);
}

absl::Status FilePut::Append(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(verifier_.Append(bytes));
  return store_->files_.Write(fd_.get(), path_, bytes);
}

absl::StatusOr<CommitResult> FilePut::Commit() {
  ASSIGN_OR_RETURN(HeaderPtr header, verifier_.Finish());
  const absl::Time now = absl::FromUnixSeconds(absl::ToUnixSeconds(store_->clock_()));
  RETURN_IF_ERROR(SetFileTime(path_, now));
  RETURN_IF_ERROR(store_->files_.Sync(fd_.get(), path_));
  ASSIGN_OR_RETURN(const CommitResult result,
                   store_->Place(announcement_, std::move(header), path_, now));
  placed_ = result == CommitResult::kStored;
  return result;
}

}  // namespace sluice::server
