#include "client/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

absl::Status WriteAll(int fd, const std::string& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// Errors name `path`, which the file is for.
absl::Status WriteParts(const std::string& file, const std::string& path, int flags,
                        std::span<const std::span<const std::byte>> parts) {
  const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  absl::Status status;
  for (const auto& part : parts) {
    if (status = WriteAll(fd, path, part); !status.ok()) break;
  }
  if (close(fd) != 0 && status.ok()) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  return status;
}

}  // namespace

absl::StatusOr<int> OpenInput(const std::string& path, uint64_t& bytes) {
  // A pipe would be waited for until somebody writes into it.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("read ", path, ": Is a directory"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a ", S_ISFIFO(info.st_mode) ? "pipe" : "device", ", not a file"));
  }
  bytes = static_cast<uint64_t>(info.st_size);
  std::move(close_fd).Cancel();
  return fd;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  uint64_t known = 0;
  ASSIGN_OR_RETURN(const int fd, OpenInput(path, known));
  absl::Cleanup close_fd = [fd] { close(fd); };
  constexpr size_t kStepBytes = 1 << 20;
  std::string content;
  while (true) {
    const size_t at = content.size();
    if (at > max_bytes) {
      return absl::OutOfRangeError(absl::StrCat(path, " has over ", max_bytes, " bytes"));
    }
    // One read for a file of known length, steps for one that the kernel makes up.
    content.resize(at + (known > at ? std::min(known - at, max_bytes + 1 - at) : kStepBytes));
    ssize_t n;
    do {
      n = read(fd, content.data() + at, content.size() - at);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
    content.resize(at + static_cast<size_t>(n));
    if (n == 0) return content;
  }
}

std::string ReadHead(const std::string& path, size_t max_bytes) {
  uint64_t known = 0;
  const absl::StatusOr<int> fd = OpenInput(path, known);
  if (!fd.ok()) return "";
  std::string head(max_bytes, '\0');
  const ssize_t n = read(*fd, head.data(), head.size());
  close(*fd);
  head.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return head;
}

absl::Status WriteFile(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return WriteParts(path, path, 0, parts);
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".partial");
  absl::Status status = WriteParts(temporary, path, O_CREAT | O_TRUNC, parts);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot rename to ", path));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace sluice::client
