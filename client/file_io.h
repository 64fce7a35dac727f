// Whole files: read into memory, or written so that a name is never seen half written.
//
// Thread-safe: no state. Blocks on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::client {

inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 40;

// Opens a file to read; the caller closes it. `bytes` becomes its size. InvalidArgument for
// folders, devices and pipes, which are never waited for.
absl::StatusOr<int> OpenInput(const std::string& path, uint64_t& bytes);

// NotFound when there is no such file; OutOfRange when it has more than `max_bytes`; otherwise as
// OpenInput.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes = kMaxFileBytes);

// The first bytes of a file, at most `max_bytes`; none if it cannot be read.
std::string ReadHead(const std::string& path, size_t max_bytes);

// Writes the parts one after the other under a temporary name beside `path`, then renames it. On
// error nothing is left behind and `path` is as it was. Writes to devices and pipes directly.
absl::Status WriteFile(const std::string& path, std::span<const std::span<const std::byte>> parts);

}  // namespace sluice::client
