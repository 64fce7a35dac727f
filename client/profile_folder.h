// A folder of profiles, each in a file that has its id for a name. Several processes may use one.
//
// Thread-safe. Blocks on the disk. Files are written so that a name is never seen half written, and
// verified by their digest whenever they are read: a damaged one is removed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/digest.h"

namespace sluice::client {

// Largest profile that is read from anywhere, bytes.
inline constexpr uint64_t kMaxProfileBytes = uint64_t{4} << 30;

class ProfileFolder {
 public:
  struct Config {
    std::string path;                         // empty: no folder, and nothing is ever found
    uint32_t mode = 0700;                     // of the folder, when it is made here
    uint64_t max_bytes = uint64_t{16} << 30;  // of all files; those used longest ago go
    uint64_t max_file_bytes = kMaxProfileBytes;
  };

  explicit ProfileFolder(Config config) : config_(std::move(config)) {}

  const std::string& path() const { return config_.path; }
  // NotFound; DataLoss if the file was damaged, which is removed then.
  absl::StatusOr<std::string> Read(const codec::Digest& id);
  // Makes the folder if it is missing, and room if it is full. A file of that name and size is
  // taken for this one. REQUIRES: `id` is the digest.
  absl::Status Write(const codec::Digest& id, std::string_view bytes);

  struct File {
    codec::Digest id = {};
    uint64_t bytes = 0;
    int64_t used_at = 0;  // seconds since 1970
  };
  // Most recently used first. Empty if there is no folder.
  std::vector<File> List() const;

 private:
  std::string FilePath(const codec::Digest& id) const;
  // Removes what was used longest ago until the limit is kept, `id` excepted, and what writers that
  // died have left.
  void MakeRoom(const codec::Digest& id);

  const Config config_;
  std::atomic<uint64_t> next_temporary_ = 0;
};

}  // namespace sluice::client
