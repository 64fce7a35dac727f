#include "client/profile_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <span>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/file_io.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

namespace fs = std::filesystem;

constexpr char kTemporarySuffix[] = ".partial";
constexpr absl::Duration kMaxWriting = absl::Hours(1);  // then a writer is taken for dead

// Makes a folder and those above it; `mode` is for the last one.
absl::Status MakeFolder(const std::string& path, uint32_t mode) {
  std::error_code error;
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
}

absl::Status WriteSynced(const std::string& path, std::string_view bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  absl::Cleanup close_fd = [fd] { close(fd); };
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  if (fsync(fd) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot sync ", path));
  return absl::OkStatus();
}

}  // namespace

std::string ProfileFolder::FilePath(const codec::Digest& id) const {
  return absl::StrCat(config_.path, "/", codec::DigestHex(id));
}

absl::StatusOr<std::string> ProfileFolder::Read(const codec::Digest& id) {
  if (config_.path.empty()) return absl::NotFoundError("there is no folder of profiles");
  const std::string path = FilePath(id);
  ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, config_.max_file_bytes));
  if (codec::Sha256(std::as_bytes(std::span(bytes))) != id) {
    unlink(path.c_str());
    return absl::DataLossError(absl::StrCat(path, ": its digest is not its name; removed"));
  }
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now; only the order of removal needs it
  return bytes;
}

absl::Status ProfileFolder::Write(const codec::Digest& id, std::string_view bytes) {
  if (config_.path.empty()) return absl::FailedPreconditionError("there is no folder of profiles");
  RETURN_IF_ERROR(MakeFolder(config_.path, config_.mode));
  const std::string path = FilePath(id);
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
      static_cast<uint64_t>(info.st_size) == bytes.size()) {
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
    return absl::OkStatus();
  }
  const std::string temporary =
      absl::StrCat(path, ".", getpid(), ".", next_temporary_.fetch_add(1), kTemporarySuffix);
  absl::Status status = WriteSynced(temporary, bytes);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot rename to ", path));
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  MakeRoom(id);
  return absl::OkStatus();
}

std::vector<ProfileFolder::File> ProfileFolder::List() const {
  std::vector<File> files;
  std::error_code error;
  fs::directory_iterator at(config_.path, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const auto id = codec::DigestFromHex(at->path().filename().string());
    struct stat info = {};
    if (!id.ok() || stat(at->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    files.push_back({*id, static_cast<uint64_t>(info.st_size), info.st_mtime});
  }
  std::ranges::sort(files, std::ranges::greater(), &File::used_at);
  return files;
}

void ProfileFolder::MakeRoom(const codec::Digest& id) {
  std::error_code error;
  const auto dead = fs::file_time_type::clock::now() - absl::ToChronoNanoseconds(kMaxWriting);
  for (fs::directory_iterator at(config_.path, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    std::error_code ignored;
    if (at->path().extension() == kTemporarySuffix && at->last_write_time(ignored) < dead) {
      fs::remove(at->path(), ignored);
    }
  }
  uint64_t bytes = 0;
  for (const File& file : List()) {
    bytes += file.bytes;
    if (bytes > config_.max_bytes && file.id != id) unlink(FilePath(file.id).c_str());
  }
}

}  // namespace sluice::client
