// The file operations that a put depends on, behind an interface so that tests can make any of them
// fail.
//
// Thread-safe. Errors carry the operation, the path and the system's reason: ResourceExhausted when
// the disk or a limit is full, NotFound, otherwise Unavailable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::server {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// The status of a failed system call, from errno.
absl::Status ErrnoStatus(absl::string_view operation, const std::string& path);

class Files {
 public:
  virtual ~Files() = default;
  // The operating system's; lives for ever.
  static Files& System();

  // A new file for writing; one that exists is an error.
  virtual absl::StatusOr<UniqueFd> Create(const std::string& path);
  virtual absl::Status Write(int fd, const std::string& path, std::span<const std::byte> bytes);
  // Waits until the file's bytes / a folder's names are on the disk.
  virtual absl::Status Sync(int fd, const std::string& path);
  virtual absl::Status SyncFolder(const std::string& path);
  // Replaces `to` if it exists.
  virtual absl::Status Rename(const std::string& from, const std::string& to);
  // Success also if there is no such file.
  virtual absl::Status Remove(const std::string& path);
  // Success also if it exists; durable.
  virtual absl::Status MakeFolder(const std::string& path);

  // Writes, syncs and renames `temporary` to `path`, then syncs `folder` that holds it.
  absl::Status WriteWhole(const std::string& temporary, const std::string& folder,
                          const std::string& path, absl::string_view bytes);
};

absl::StatusOr<UniqueFd> OpenForReading(const std::string& path);
// Fills `out`; DataLoss if the file ends before.
absl::Status ReadAt(int fd, const std::string& path, uint64_t offset, std::span<std::byte> out);
// ResourceExhausted if the file is longer than `max_bytes`.
absl::StatusOr<std::string> ReadWhole(const std::string& path, size_t max_bytes);
struct FileFacts {
  uint64_t bytes = 0;
  absl::Time changed_at;
};
absl::StatusOr<FileFacts> GetFileFacts(int fd, const std::string& path);
// Sets the time of last change, which is where the time of last use is kept.
absl::Status SetFileTime(const std::string& path, absl::Time time);

}  // namespace sluice::server
