#include "client/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/file_io.h"
#include "codec/status_macros.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr std::string_view kContextMagic = "SLUICECX";  // which is no safetensors file, but ours
static_assert(kContextMagic.size() <= kLengthBytes);
constexpr int kMaxJsonDepth = 4;  // header, tensor, its shape; one to spare

uint64_t LoadLittleEndian64(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

absl::Status Bad(absl::string_view tensor, absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor, "\": ", field, " ", what));
}

// Parses JSON without keeping what is too deep, and notices names that occur twice.
absl::StatusOr<json> ParseJson(std::string_view text) {
  std::vector<std::set<std::string>> names;  // of the objects that are open
  std::string fault;
  auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxJsonDepth) {
      if (fault.empty()) fault = "is nested too deeply";
      return false;
    }
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end && !names.empty()) names.pop_back();
    if (event == json::parse_event_t::key && !names.empty() && fault.empty()) {
      const auto& name = value.get_ref<const std::string&>();
      if (!names.back().insert(name).second) fault = absl::StrCat("has \"", name, "\" twice");
    }
    return true;
  };
  json parsed = json::parse(text, check, /*allow_exceptions=*/false);
  if (fault.empty() && parsed.is_discarded()) fault = "is not valid JSON";
  if (fault.empty() && !parsed.is_object()) fault = "is not a JSON object";
  if (!fault.empty()) return absl::InvalidArgumentError(absl::StrCat("safetensors header ", fault));
  return parsed;
}

absl::StatusOr<TensorEntry> ParseTensor(const std::string& name, const json& value,
                                        uint64_t data_bytes) {
  if (!value.is_object()) return Bad(name, "entry", "is not an object");
  const auto dtype = value.find("dtype");
  if (dtype == value.end() || !dtype->is_string()) return Bad(name, "dtype", "is missing");
  TensorEntry entry;
  entry.dtype = dtype->get<std::string>();
  const size_t element_bytes = SafetensorsDtypeBytes(entry.dtype);
  if (element_bytes == 0)
    return Bad(name, "dtype", absl::StrCat("\"", entry.dtype, "\" is unknown"));

  const auto shape = value.find("shape");
  if (shape == value.end() || !shape->is_array()) return Bad(name, "shape", "is missing");
  if (shape->size() > kMaxSafetensorsRank) return Bad(name, "shape", "has too many dimensions");
  uint64_t bytes = element_bytes;
  for (const json& dim : *shape) {
    if (!dim.is_number_unsigned()) return Bad(name, "shape", "has a dimension that is no size");
    const uint64_t size = dim.get<uint64_t>();
    if (__builtin_mul_overflow(bytes, size, &bytes)) return Bad(name, "shape", "is too large");
    entry.shape.push_back(size);
  }

  const auto offsets = value.find("data_offsets");
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return Bad(name, "data_offsets", "is not a pair of positions");
  }
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  if (entry.begin > entry.end) return Bad(name, "data_offsets", "runs backwards");
  if (entry.end > data_bytes) {
    return Bad(name, "data_offsets",
               absl::StrCat("ends at byte ", entry.end, " of the data, but the file has only ",
                            data_bytes, ": it is truncated"));
  }
  if (entry.end - entry.begin != bytes) {
    return Bad(name, "data_offsets",
               absl::StrCat("spans ", entry.end - entry.begin, " bytes, but shape and dtype need ",
                            bytes));
  }
  return entry;
}

// The tensors must cover the data from its first to its last byte, each byte once.
absl::Status CheckCover(const std::map<std::string, TensorEntry>& tensors, uint64_t data_bytes) {
  std::vector<std::tuple<uint64_t, uint64_t, absl::string_view>> order;
  for (const auto& [name, entry] : tensors) order.emplace_back(entry.begin, entry.end, name);
  std::ranges::sort(order);
  uint64_t at = 0;
  for (const auto& [begin, end, name] : order) {
    if (begin < at) return Bad(name, "data_offsets", "overlaps another tensor");
    if (begin > at) return Bad(name, "data_offsets", "leaves a gap before it");
    at = end;
  }
  if (at != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has ", data_bytes - at, " bytes that belong to no tensor"));
  }
  return absl::OkStatus();
}

absl::Status ParseMetadata(const json& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) return absl::InvalidArgumentError("__metadata__ is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("__metadata__ \"", key, "\" is not a string"));
    }
    metadata.emplace(key, text.get<std::string>());
  }
  return absl::OkStatus();
}

}  // namespace

size_t SafetensorsDtypeBytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, size_t> kDtypes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8},
  };
  for (const auto& [name, bytes] : kDtypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> bytes,
                                                         uint64_t file_bytes) {
  if (bytes.size() < kLengthBytes) {
    return absl::InvalidArgumentError("not a safetensors file: shorter than its length field");
  }
  if (std::memcmp(bytes.data(), kContextMagic.data(), kContextMagic.size()) == 0) {
    return absl::InvalidArgumentError("this is a .sluice file; decode it first");
  }
  const uint64_t header_bytes = LoadLittleEndian64(bytes);
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("not a safetensors file: header length ",
                                                   header_bytes, " is over the limit of ",
                                                   kMaxSafetensorsHeaderBytes));
  }
  if (header_bytes > bytes.size() - kLengthBytes || file_bytes < kLengthBytes + header_bytes) {
    return absl::InvalidArgumentError("not a safetensors file, or truncated in its header");
  }
  const char* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  ASSIGN_OR_RETURN(const json parsed, ParseJson(std::string_view(text, header_bytes)));
  if (parsed.size() > kMaxSafetensorsTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxSafetensorsTensors, " tensors"));
  }
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + header_bytes;
  const uint64_t data_bytes = file_bytes - header.data_offset;
  for (const auto& [name, value] : parsed.items()) {
    if (name == "__metadata__") {
      RETURN_IF_ERROR(ParseMetadata(value, header.metadata));
      continue;
    }
    ASSIGN_OR_RETURN(TensorEntry entry, ParseTensor(name, value, data_bytes));
    header.tensors.emplace(name, std::move(entry));
  }
  RETURN_IF_ERROR(CheckCover(header.tensors, data_bytes));
  return header;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  uint64_t bytes = 0;
  ASSIGN_OR_RETURN(const int fd, OpenInput(path, bytes));
  absl::Cleanup close_fd = [fd] { close(fd); };
  if (bytes == 0) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  SafetensorsFile file;
  file.map_bytes_ = bytes;
  void* map = mmap(nullptr, file.map_bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  file.map_ = static_cast<const std::byte*>(map);
  auto header = ParseSafetensorsHeader({file.map_, file.map_bytes_}, file.map_bytes_);
  if (!header.ok()) {
    return absl::Status(header.status().code(),
                        absl::StrCat(path, ": ", header.status().message()));
  }
  file.header_ = *std::move(header);
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept { *this = std::move(other); }

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(header_, other.header_);
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) munmap(const_cast<std::byte*>(map_), map_bytes_);
}

std::span<const std::byte> SafetensorsFile::data(const TensorEntry& entry) const {
  return {map_ + header_.data_offset + entry.begin, static_cast<size_t>(entry.end - entry.begin)};
}

absl::Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors,
                              const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const TensorView& tensor : tensors) {
    uint64_t bytes = SafetensorsDtypeBytes(tensor.dtype);
    for (uint64_t size : tensor.shape) bytes *= size;
    if (bytes != tensor.data.size() || header.contains(tensor.name)) {
      return absl::InternalError(absl::StrCat("tensor \"", tensor.name, "\" cannot be written"));
    }
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  // Metadata may hold bytes that are not UTF-8; they are replaced rather than refused.
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  std::string prefix(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) prefix[i] = static_cast<char>(text.size() >> (8 * i));
  prefix += text;
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(prefix))};
  for (const TensorView& tensor : tensors) parts.push_back(tensor.data);
  return WriteFile(path, parts);
}

}  // namespace sluice::client
