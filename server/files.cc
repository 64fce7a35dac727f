#include "server/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::server {

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status ErrnoStatus(absl::string_view operation, const std::string& path) {
  const int code = errno;
  const std::string message = absl::StrCat(operation, " ", path, ": ", std::strerror(code));
  switch (code) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    case ENOENT:
      return absl::NotFoundError(message);
    default:
      return absl::UnavailableError(message);
  }
}

Files& Files::System() {
  static Files* const files = new Files;
  return *files;
}

absl::StatusOr<UniqueFd> Files::Create(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
  if (!fd.valid()) return ErrnoStatus("create", path);
  return fd;
}

absl::Status Files::Write(int fd, const std::string& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus("write", path);
    bytes = bytes.subspan(written);
  }
  return absl::OkStatus();
}

absl::Status Files::Sync(int fd, const std::string& path) {
  return ::fsync(fd) == 0 ? absl::OkStatus() : ErrnoStatus("fsync", path);
}

absl::Status Files::SyncFolder(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("open", path);
  return ::fsync(fd.get()) == 0 ? absl::OkStatus() : ErrnoStatus("fsync", path);
}

absl::Status Files::Rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus("rename to", to);
}

absl::Status Files::Remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus("remove", path);
}

absl::Status Files::MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0750) != 0) {
    return errno == EEXIST ? absl::OkStatus() : ErrnoStatus("mkdir", path);
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return SyncFolder(parent.empty() ? "." : parent);
}

absl::Status Files::WriteWhole(const std::string& temporary, const std::string& folder,
                               const std::string& path, absl::string_view bytes) {
  auto write = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(UniqueFd fd, Create(temporary));
    RETURN_IF_ERROR(Write(fd.get(), temporary, std::as_bytes(std::span(bytes))));
    RETURN_IF_ERROR(Sync(fd.get(), temporary));
    RETURN_IF_ERROR(Rename(temporary, path));
    return SyncFolder(folder);
  };
  absl::Status status = write();
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

absl::StatusOr<UniqueFd> OpenForReading(const std::string& path) {
  // Not blocking, for a pipe of that name would be waited for.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus("open", path);
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus("stat", path);
  errno = EISDIR;
  if (S_ISDIR(info.st_mode)) return ErrnoStatus("read", path);
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, " is not a file"));
  return fd;
}

absl::Status ReadAt(int fd, const std::string& path, uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("read", path);
    if (got == 0) return absl::DataLossError(absl::StrCat(path, " is truncated at ", offset));
    offset += got;
    out = out.subspan(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<FileFacts> GetFileFacts(int fd, const std::string& path) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus("stat", path);
  return FileFacts{static_cast<uint64_t>(info.st_size), absl::TimeFromTimespec(info.st_mtim)};
}

absl::StatusOr<std::string> ReadWhole(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenForReading(path));
  ASSIGN_OR_RETURN(const FileFacts facts, GetFileFacts(fd.get(), path));
  if (facts.bytes > max_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, " has ", facts.bytes, " bytes, at most ", max_bytes, " are expected"));
  }
  std::string bytes(facts.bytes, '\0');
  RETURN_IF_ERROR(ReadAt(fd.get(), path, 0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

absl::Status SetFileTime(const std::string& path, absl::Time time) {
  const timespec times[2] = {{0, UTIME_OMIT}, absl::ToTimespec(time)};
  return ::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0 ? absl::OkStatus()
                                                            : ErrnoStatus("set time of", path);
}

}  // namespace sluice::server
