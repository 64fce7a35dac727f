// The puts that are announced and not committed yet.
//
// Thread-safe. An upload without a frame for the time to live is forgotten, which undoes it; so is
// one whose bytes were wrong. Ids are random, so that one client cannot name another's upload by
// chance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/store.h"

namespace sluice::server {

class UploadTable {
 public:
  // Committed uploads that are remembered, so that a repeated commit is a success.
  static constexpr size_t kMaxRemembered = 4096;

  UploadTable(size_t max_uploads, uint64_t max_bytes, absl::Duration ttl);

  // Takes a place for an upload of `bytes`; ResourceExhausted names the limit. Follow with Add or
  // Withdraw.
  absl::Status Admit(uint64_t bytes);
  void Withdraw(uint64_t bytes);
  // Returns the id, not 0.
  uint64_t Add(std::unique_ptr<PutSession> session, uint64_t bytes, absl::Time now);

  // Appends at `offset` and returns the bytes received so far. InvalidArgument: the offset is not
  // the next one (the upload goes on) or the bytes are wrong (the upload is over). Aborted: another
  // call is using the upload.
  absl::StatusOr<uint64_t> Append(uint64_t id, uint64_t offset, std::span<const std::byte> bytes,
                                  absl::Time now);
  // The upload is over whatever the result.
  absl::StatusOr<CommitResult> Commit(uint64_t id);

  // Forgets the expired ones.
  void Reap(absl::Time now);
  size_t size() const;

 private:
  struct Upload {
    std::unique_ptr<PutSession> session;  // null while a call uses it
    uint64_t total_bytes = 0;
    uint64_t received_bytes = 0;
    absl::Time used_at;
  };

  absl::StatusOr<std::unique_ptr<PutSession>> Take(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t max_uploads_;
  const uint64_t max_bytes_;
  const absl::Duration ttl_;
  mutable absl::Mutex mu_;
  absl::BitGen random_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Upload> uploads_ ABSL_GUARDED_BY(mu_);
  size_t admitted_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t admitted_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_set<uint64_t> committed_ ABSL_GUARDED_BY(mu_);
  std::deque<uint64_t> committed_order_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice::server
