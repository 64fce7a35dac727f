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

// NotFound when there is no such file; ResourceExhausted when it has more than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes = kMaxFileBytes);

// Writes the parts one after the other under a temporary name beside `path`, then renames it. On
// error nothing is left behind and `path` is as it was. Writes to devices and pipes directly.
absl::Status WriteFile(const std::string& path, std::span<const std::span<const std::byte>> parts);

}  // namespace sluice::client
