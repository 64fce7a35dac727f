// A store on a local disk. Layout of its folder:
//   lock                                  held while a server uses the folder
//   tmp/                                  puts in progress; emptied at start
//   quarantine/                           damaged or misplaced files, at most kMaxQuarantineFiles
//   profiles/<id, hex>                    a profile's bytes, for all namespaces that name it
//   <namespace, hex>/namespace            the descriptor's canonical bytes
//   <namespace, hex>/pins                 pinned keys, one in hex per line
//   <namespace, hex>/<2 hex>/<key, hex>.chunk   a container; its time of change is its use second
//
// A put, also of a profile, is written to tmp/ while its checksums are verified, synced, renamed to
// its place, the folder is synced, and only then does the index show it. Readers hold the file
// open, so eviction does not disturb them.
//
// Thread-safe, like Store. What is visible is decided by the index: while a key's stripe is held,
// the file of a key exists exactly if the index has it.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/files.h"
#include "server/indexed_store.h"

namespace sluice::server {

struct FileStoreOptions {
  std::string data_dir;  // created if missing; its parent must exist
  uint64_t quota_bytes = 0;
  size_t max_namespaces = 1024;
  uint64_t profile_quota_bytes = uint64_t{16} << 30;
  Files* files = &Files::System();
  Clock clock = [] { return absl::Now(); };
  // Called with one line per damaged file and similar events, from any thread.
  std::function<void(absl::string_view)> warn = [](absl::string_view) {};
};

class FileStore : public IndexedStore {
 public:
  static constexpr size_t kMaxQuarantineFiles = 64;

  // Locks the folder and rebuilds the index from the headers of the files. FailedPrecondition if
  // another process holds the folder.
  static absl::StatusOr<std::unique_ptr<FileStore>> Open(FileStoreOptions options);

  absl::StatusOr<ReaderPtr> Open(const ChunkId& id) override;
  void RemoveDamaged(const ChunkId& id, const HeaderPtr& header) override;
  absl::StatusOr<std::shared_ptr<const ProfileReader>> OpenProfile(const Digest& id) override;
  void RemoveDamagedProfile(const ProfilePtr& profile) override;
  void DropUnusedProfiles() override;

 protected:
  absl::StatusOr<std::unique_ptr<PutSession>> MakeSession(Announcement announcement) override;
  absl::StatusOr<std::unique_ptr<PutSession>> MakeProfileSession(const Digest& id,
                                                                 uint64_t total_bytes) override;
  absl::StatusOr<bool> RemoveChunk(const ChunkId& id) override;
  void RemoveEvicted(const ChunkId& id) override;
  void PersistUse(const ChunkId& id, absl::Time at) override;
  absl::Status PersistPins(const Digest& namespace_digest) override;
  void DropEmptyNamespaces() override;

 private:
  friend class FilePut;
  friend class FileProfilePut;
  static constexpr size_t kStripes = 64;

  explicit FileStore(FileStoreOptions options);
  absl::Status Lock();
  absl::Status MakeFolders();

  // The scan, file_store_scan.cc.
  absl::Status Scan();
  absl::Status ScanNamespace(const std::string& folder, absl::string_view name);
  void ScanShard(const std::string& folder, const Digest& namespace_digest,
                 const codec::NamespaceDescriptor& descriptor);
  absl::Status ScanChunk(const std::string& path, const ChunkId& id,
                         const codec::NamespaceDescriptor& descriptor);
  void ScanPins(const Digest& namespace_digest);
  // Moves a file or folder out of the way, or deletes it if the quarantine is full; warns.
  void Quarantine(const std::string& path, absl::string_view reason);

  // The profiles, file_profiles.cc.
  absl::Status ScanProfiles();
  absl::StatusOr<CommitResult> PlaceProfile(ProfilePtr profile, const std::string& temporary);
  std::string ProfileFolder() const;
  std::string ProfilePath(const Digest& id) const;

  // Puts a finished, synced temporary file, whose file time is `now`, in its place.
  absl::StatusOr<CommitResult> Place(const Announcement& announcement, HeaderPtr header,
                                     const std::string& temporary, absl::Time now);
  absl::Status EnsureNamespace(const Announcement& announcement);

  std::string NamespaceFolder(const Digest& digest) const;
  std::string ShardFolder(const ChunkId& id) const;
  std::string ChunkPath(const ChunkId& id) const;
  std::string NewTemporary();
  absl::Mutex& Stripe(const ChunkId& id) { return stripes_[id.key[0] % kStripes]; }

  const FileStoreOptions options_;
  Files& files_;
  UniqueFd lock_;
  std::atomic<uint64_t> next_temporary_ = 1;
  // Order: tree_mu_ before namespace_mu_ and stripes_; profile_mu_ with none of them.
  absl::Mutex tree_mu_;       // shared to place a chunk, exclusive to remove a namespace's folder
  absl::Mutex namespace_mu_;  // to create a namespace or write its pins
  absl::Mutex profile_mu_;    // makes a change of the profiles' table and files one step
  absl::Mutex quarantine_mu_;
  std::array<absl::Mutex, kStripes>
      stripes_;  // one change at a time to a key's file and index entry
};

}  // namespace sluice::server
