// Rebuilds the index at start. Reads the headers of the chunks, not their segments: those are
// verified when they are first read into the cache. Profiles are verified while they are sent.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "codec/status_macros.h"
#include "server/container_verifier.h"
#include "server/file_store.h"

namespace sluice::server {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxDescriptorBytes = 4096;
constexpr size_t kMaxPinsBytes = size_t{256} << 20;
constexpr size_t kHexDigits = 64;

// The entries of a folder, in no particular order.
absl::StatusOr<std::vector<fs::directory_entry>> List(const std::string& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) entries.push_back(*at);
  if (error) return absl::UnavailableError(absl::StrCat("list ", folder, ": ", error.message()));
  return entries;
}

// False for what cannot be looked at, such as a link to itself.
bool IsFolder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_directory(error);
}

bool HasFolder(const std::string& folder) {
  const auto entries = List(folder);
  return !entries.ok() || std::ranges::any_of(*entries, IsFolder);
}

}  // namespace

absl::Status FileStore::Scan() {
  ASSIGN_OR_RETURN(const auto entries, List(options_.data_dir));
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name.size() != kHexDigits || !IsFolder(entry)) continue;
    const absl::Status status = ScanNamespace(entry.path().string(), name);
    if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) return status;
    if (status.ok()) continue;
    // A server killed while it created a namespace leaves a folder without chunks.
    if (!absl::IsNotFound(status) || HasFolder(entry.path().string())) {
      Quarantine(entry.path().string(), status.message());
    } else {
      std::error_code error;
      fs::remove_all(entry.path(), error);
    }
  }
  DropEmptyNamespaces();
  RETURN_IF_ERROR(ScanProfiles());
  DropUnusedProfiles();
  for (const ChunkId& id : index_.EvictToQuota()) RemoveEvicted(id);
  return absl::OkStatus();
}

absl::Status FileStore::ScanNamespace(const std::string& folder, absl::string_view name) {
  ASSIGN_OR_RETURN(const Digest digest, codec::DigestFromHex(std::string(name)));
  ASSIGN_OR_RETURN(const std::string descriptor_bytes,
                   ReadWhole(folder + "/namespace", kMaxDescriptorBytes));
  ASSIGN_OR_RETURN(const codec::NamespaceDescriptor descriptor,
                   codec::DecodeNamespace(std::as_bytes(std::span(descriptor_bytes))));
  if (codec::NamespaceDigest(descriptor) != digest) {
    return absl::DataLossError("the descriptor's digest is not the folder's name");
  }
  RETURN_IF_ERROR(index_.AddNamespace(digest, descriptor));
  ASSIGN_OR_RETURN(const auto entries, List(folder));
  for (const fs::directory_entry& entry : entries) {
    if (IsFolder(entry)) ScanShard(entry.path().string(), digest, descriptor);
  }
  ScanPins(digest);
  return absl::OkStatus();
}

void FileStore::ScanShard(const std::string& folder, const Digest& namespace_digest,
                          const codec::NamespaceDescriptor& descriptor) {
  const auto entries = List(folder);
  if (!entries.ok()) {
    options_.warn(absl::StrCat("event=scan_failed error=\"", entries.status().message(), "\""));
    return;
  }
  for (const fs::directory_entry& entry : *entries) {
    const std::string path = entry.path().string();
    const auto key = codec::DigestFromHex(entry.path().stem().string());
    if (!key.ok() || ChunkPath({namespace_digest, *key}) != path) {
      Quarantine(path, "it is not where a chunk of this name belongs");
      continue;
    }
    const absl::Status status = ScanChunk(path, {namespace_digest, *key}, descriptor);
    if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) {
      options_.warn(absl::StrCat("event=chunk_unreadable error=\"", status.message(), "\""));
    } else if (!status.ok()) {
      Quarantine(path, status.message());
    }
  }
}

absl::Status FileStore::ScanChunk(const std::string& path, const ChunkId& id,
                                  const codec::NamespaceDescriptor& descriptor) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenForReading(path));
  std::vector<std::byte> bytes(codec::kHeaderPrefixBytes);
  RETURN_IF_ERROR(ReadAt(fd.get(), path, 0, bytes));
  ASSIGN_OR_RETURN(const uint32_t header_bytes, codec::PeekHeaderBytes(bytes));
  bytes.resize(header_bytes);
  RETURN_IF_ERROR(ReadAt(fd.get(), path, 0, bytes));
  ASSIGN_OR_RETURN(codec::ChunkHeader header, codec::ParseChunkHeader(bytes));
  RETURN_IF_ERROR(CheckIdentity(header, id, descriptor));
  ASSIGN_OR_RETURN(const FileFacts facts, GetFileFacts(fd.get(), path));
  if (facts.bytes != header.total_bytes()) {
    return absl::DataLossError(
        absl::StrCat("it has ", facts.bytes, " bytes, its header says ", header.total_bytes()));
  }
  index_.Insert(id, std::make_shared<const codec::ChunkHeader>(std::move(header)), 0,
                facts.changed_at, std::nullopt);
  return absl::OkStatus();
}

void FileStore::ScanPins(const Digest& namespace_digest) {
  const std::string path = NamespaceFolder(namespace_digest) + "/pins";
  const auto text = ReadWhole(path, kMaxPinsBytes);
  if (absl::IsNotFound(text.status())) return;
  if (!text.ok()) {
    options_.warn(absl::StrCat("event=pins_unreadable error=\"", text.status().message(), "\""));
    return;
  }
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipWhitespace())) {
    const auto key = codec::DigestFromHex(std::string(line));
    if (!key.ok()) {
      Quarantine(path, key.status().message());
      return;
    }
    index_.SetPinned({namespace_digest, *key}, true);
  }
}

void FileStore::Quarantine(const std::string& path, absl::string_view reason) {
  absl::MutexLock lock(&quarantine_mu_);
  const std::string folder = absl::StrCat(options_.data_dir, "/quarantine");
  const auto kept = List(folder);
  bool keep = kept.ok() && kept->size() < kMaxQuarantineFiles;
  std::error_code error;
  if (keep) {
    // One of the numbers up to the count is free, so nothing that is kept is replaced.
    std::string place;
    for (size_t number = 0; number <= kept->size(); ++number) {
      place = absl::StrCat(folder, "/", fs::path(path).filename().string(), ".", number);
      if (!fs::exists(place, error)) break;
    }
    fs::rename(path, place, error);
    keep = !error;
  }
  if (!keep) fs::remove_all(path, error);
  options_.warn(absl::StrCat("event=", keep ? "quarantined" : "deleted", " path=\"", path,
                             "\" reason=\"", reason, "\"",
                             error ? absl::StrCat(" error=\"", error.message(), "\"") : ""));
}

}  // namespace sluice::server
