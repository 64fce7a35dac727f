#include "server/service_streams.h"

#include "absl/strings/str_cat.h"

namespace sluice::server {

StreamRegistry::Entry::~Entry() {
  if (registry_ == nullptr) return;
  absl::MutexLock lock(&registry_->mu_);
  registry_->streams_.erase(id_);
}

void StreamRegistry::Entry::SetSession(FetchSession* session) {
  absl::MutexLock lock(&registry_->mu_);
  registry_->streams_[id_].session = session;
}

void StreamRegistry::Entry::Touch(absl::Time now) {
  absl::MutexLock lock(&registry_->mu_);
  registry_->streams_[id_].touched_at = now;
}

absl::StatusOr<StreamRegistry::Entry> StreamRegistry::Add(grpc::ServerContext* context,
                                                          absl::Time now) {
  absl::MutexLock lock(&mu_);
  if (streams_.size() >= max_streams_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_streams = ", max_streams_, " streams are open; try again later"));
  }
  const uint64_t id = next_id_++;
  streams_[id] = {context, nullptr, now};
  return Entry(this, id);
}

size_t StreamRegistry::size() const {
  absl::MutexLock lock(&mu_);
  return streams_.size();
}

size_t StreamRegistry::fetch_count() const {
  absl::MutexLock lock(&mu_);
  size_t count = 0;
  for (const auto& [id, stream] : streams_) count += stream.session != nullptr;
  return count;
}

void StreamRegistry::CancelSilent(absl::Time before) {
  absl::MutexLock lock(&mu_);
  for (const auto& [id, stream] : streams_) {
    if (stream.session == nullptr && stream.touched_at < before) stream.context->TryCancel();
  }
}

void StreamRegistry::CancelIdleLoads() {
  absl::MutexLock lock(&mu_);
  for (const auto& [id, stream] : streams_) {
    if (stream.session != nullptr && stream.session->idle()) stream.context->TryCancel();
  }
}

}  // namespace sluice::server
