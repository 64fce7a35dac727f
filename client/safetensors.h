// The safetensors file format: named tensors and string metadata in one file.
//
// A file is an 8-byte little-endian header length, a JSON header, and the tensors' bytes. Files are
// hostile: every count, length and offset is checked before it is used, and errors name the tensor
// and the field. SafetensorsFile is immutable after Open, so safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::client {

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = uint64_t{64} << 20;
inline constexpr size_t kMaxSafetensorsTensors = 16384;
inline constexpr size_t kMaxSafetensorsRank = 8;

// Bytes of one element of a dtype such as "BF16"; 0 for a name that the format does not have.
size_t SafetensorsDtypeBytes(std::string_view dtype);

// Where a tensor is in the file; `begin` and `end` count from the first byte after the header.
struct TensorEntry {
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // in the file, of the first byte after the header
};

// `bytes` begins with the length field and the header; `file_bytes` is the whole file's length.
// Pure.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> bytes,
                                                         uint64_t file_bytes);

// A file mapped into memory. Must not be truncated by others while it is open.
class SafetensorsFile {
 public:
  // NotFound when there is no such file, InvalidArgument when it is not a good safetensors file.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  SafetensorsFile() = default;  // no tensors
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  const std::map<std::string, TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Bytes of one of tensors(); valid while the file is open, not aligned.
  std::span<const std::byte> data(const TensorEntry& entry) const;

 private:
  SafetensorsHeader header_;
  const std::byte* map_ = nullptr;
  size_t map_bytes_ = 0;
};

// A tensor to be written.
struct TensorView {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;  // of exactly the shape's length
};

// Writes a file under a temporary name beside `path` and renames it, so that `path` is whole or
// untouched. Tensors are written in the given order; names must differ.
absl::Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors,
                              const std::map<std::string, std::string>& metadata);

}  // namespace sluice::client
