// Profiles by their id: from memory, from a folder of this host, or from the storage server.
//
// Thread-safe. Threads of the store read and fetch; those who ask wait for them, each until its own
// deadline. A profile that many ask for is fetched once, and what was begun goes on when nobody
// waits for it any more. Whatever the place, the digest is verified; a damaged file is removed and
// the profile fetched again. Profiles are shared, never copied, and ready to decode when they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/profile_folder.h"
#include "client/remote_store.h"
#include "codec/profile.h"

namespace sluice::client {

using ProfilePtr = std::shared_ptr<const codec::Profile>;

class ProfileStore {
 public:
  // Profiles that may be waited for at a time, and that are known to be of no use.
  static constexpr size_t kMaxWanted = 64;
  static constexpr size_t kMaxUseless = 64;

  struct Config {
    ProfileFolder::Config folder;
    uint64_t memory_bytes = uint64_t{1} << 30;  // of profiles that are kept though nobody uses them
    absl::Duration fetch_timeout = kMaxCallTime;
    size_t threads = 2;  // profiles that are read or fetched at a time
  };

  // `server` may be null: then there are only memory and folder.
  ProfileStore(std::shared_ptr<RemoteStore> server, Config config);
  // Ends what is under way. Nobody may be waiting.
  ~ProfileStore();
  ProfileStore(const ProfileStore&) = delete;
  ProfileStore& operator=(const ProfileStore&) = delete;

  // DeadlineExceeded: it has not come yet, and may be there next time. NotFound: no place has it.
  // FailedPrecondition: it has come, but this program cannot use it. Otherwise the server's error.
  // `cancelled` may be empty; it is asked every 10 ms, and once it says true the answer is
  // Cancelled.
  absl::StatusOr<ProfilePtr> Get(const codec::Digest& id, absl::Time deadline,
                                 const std::function<bool()>& cancelled = nullptr);
  // Keeps a profile in memory, and in the folder as far as that is possible.
  void Add(ProfilePtr profile);
  // Bytes of the profiles that are kept in memory.
  uint64_t memory_bytes() const;

 private:
  // A profile that somebody has asked for. Shared between those who wait and the thread.
  struct Wanted {
    codec::Digest id = {};
    std::optional<absl::StatusOr<ProfilePtr>> result;
  };

  void Work();
  // `useless` becomes true if asking again would give the same error.
  absl::StatusOr<ProfilePtr> Obtain(const codec::Digest& id, bool& useless);
  absl::StatusOr<std::string> ReadBytes(const codec::Digest& id);
  ProfilePtr FindInMemory(const codec::Digest& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepInMemory(ProfilePtr profile) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<RemoteStore> server_;
  const Config config_;
  ProfileFolder folder_;
  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<Wanted>> queue_ ABSL_GUARDED_BY(mutex_);
  // Those in the queue and those that a thread works on.
  absl::flat_hash_map<codec::Digest, std::shared_ptr<Wanted>> wanted_ ABSL_GUARDED_BY(mutex_);
  std::list<ProfilePtr> recent_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  uint64_t recent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // All that are alive, also those that left `recent_` while somebody uses them.
  absl::flat_hash_map<codec::Digest, std::weak_ptr<const codec::Profile>> known_
      ABSL_GUARDED_BY(mutex_);
  // The bytes are right, but this program cannot use them; asking again would not help.
  absl::flat_hash_map<codec::Digest, absl::Status> useless_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace sluice::client
