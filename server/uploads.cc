#include "server/uploads.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::server {

UploadTable::UploadTable(size_t max_uploads, uint64_t max_bytes, absl::Duration ttl)
    : max_uploads_(max_uploads), max_bytes_(max_bytes), ttl_(ttl) {}

absl::Status UploadTable::Admit(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  if (admitted_ >= max_uploads_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_uploads = ", max_uploads_, " uploads are open; try again later"));
  }
  if (bytes > max_bytes_ - admitted_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_upload_bytes = ", max_bytes_, ": the open uploads leave ",
                     max_bytes_ - admitted_bytes_, " bytes, ", bytes, " wanted; try again later"));
  }
  ++admitted_;
  admitted_bytes_ += bytes;
  return absl::OkStatus();
}

void UploadTable::Withdraw(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  --admitted_;
  admitted_bytes_ -= bytes;
}

uint64_t UploadTable::Add(std::unique_ptr<PutSession> session, uint64_t bytes, absl::Time now) {
  absl::MutexLock lock(&mu_);
  uint64_t id = 0;
  while (id == 0 || uploads_.contains(id) || committed_.contains(id)) {
    id = absl::Uniform<uint64_t>(random_);
  }
  uploads_[id] = {std::move(session), bytes, 0, now};
  return id;
}

absl::StatusOr<std::unique_ptr<PutSession>> UploadTable::Take(uint64_t id) {
  auto at = uploads_.find(id);
  if (at == uploads_.end()) {
    return absl::NotFoundError(
        absl::StrCat("upload_id: there is no upload ", id, "; it failed, ended or expired"));
  }
  if (at->second.session == nullptr) {
    return absl::AbortedError(absl::StrCat("upload_id: another call is using upload ", id));
  }
  return std::move(at->second.session);
}

void UploadTable::Forget(uint64_t id) {
  auto at = uploads_.find(id);
  --admitted_;
  admitted_bytes_ -= at->second.total_bytes;
  uploads_.erase(at);
}

absl::StatusOr<uint64_t> UploadTable::Append(uint64_t id, uint64_t offset,
                                             std::span<const std::byte> bytes, absl::Time now) {
  std::unique_ptr<PutSession> session;
  {
    absl::MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(session, Take(id));
    Upload& upload = uploads_[id];
    upload.used_at = now;
    if (offset != upload.received_bytes) {
      upload.session = std::move(session);
      return absl::InvalidArgumentError(
          absl::StrCat("offset: ", offset, " sent, ", upload.received_bytes, " expected"));
    }
  }
  const absl::Status status = session->Append(bytes);
  if (!status.ok()) session.reset();  // the undo must be over before its bytes count as free
  absl::MutexLock lock(&mu_);
  if (!status.ok()) {
    Forget(id);
    return status;
  }
  Upload& upload = uploads_[id];
  upload.session = std::move(session);
  upload.received_bytes += bytes.size();
  return upload.received_bytes;
}

absl::StatusOr<CommitResult> UploadTable::Commit(uint64_t id) {
  std::unique_ptr<PutSession> session;
  {
    absl::MutexLock lock(&mu_);
    if (committed_.contains(id)) return CommitResult::kAlreadyStored;
    ASSIGN_OR_RETURN(session, Take(id));
  }
  const absl::StatusOr<CommitResult> result = session->Commit();
  session.reset();
  absl::MutexLock lock(&mu_);
  Forget(id);
  if (result.ok()) {
    committed_.insert(id);
    committed_order_.push_back(id);
    if (committed_order_.size() > kMaxRemembered) {
      committed_.erase(committed_order_.front());
      committed_order_.pop_front();
    }
  }
  return result;
}

void UploadTable::Reap(absl::Time now) {
  std::vector<std::unique_ptr<PutSession>> expired;
  absl::MutexLock lock(&mu_);
  std::vector<uint64_t> ids;
  for (auto& [id, upload] : uploads_) {
    if (upload.session == nullptr || now - upload.used_at < ttl_) continue;
    expired.push_back(std::move(upload.session));
    ids.push_back(id);
  }
  for (uint64_t id : ids) Forget(id);
}

size_t UploadTable::size() const {
  absl::MutexLock lock(&mu_);
  return uploads_.size();
}

}  // namespace sluice::server
