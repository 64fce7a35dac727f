// A put into a FileStore: a temporary file that is verified while it grows.
//
// One thread at a time, like PutSession.
#pragma once

#include <string>

#include "server/container_verifier.h"
#include "server/file_store.h"

namespace sluice::server {

class FilePut : public PutSession {
 public:
  // Takes over the reservation and the temporary file.
  FilePut(FileStore* store, Announcement announcement, UniqueFd fd, std::string path);
  // The one undo path: removes the temporary file and gives the reservation back.
  ~FilePut() override;

  absl::Status Append(std::span<const std::byte> bytes) override;
  absl::StatusOr<CommitResult> Commit() override;

 private:
  FileStore* const store_;
  const Announcement announcement_;
  const UniqueFd fd_;
  const std::string path_;
  ContainerVerifier verifier_;
  bool placed_ = false;
};

}  // namespace sluice::server
