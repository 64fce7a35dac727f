// The streams that are open: their number is limited, and a drain or a stalled client ends them.
//
// Thread-safe.
#pragma once

#include <grpcpp/server_context.h>

#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/fetch_session.h"

namespace sluice::server {

class StreamRegistry {
 public:
  // Stays registered until destroyed. Move only.
  class Entry {
   public:
    Entry(StreamRegistry* registry, uint64_t id) : registry_(registry), id_(id) {}
    Entry(Entry&& other) noexcept : registry_(other.registry_), id_(other.id_) {
      other.registry_ = nullptr;
    }
    Entry& operator=(Entry&&) = delete;
    ~Entry();

    // Declares the load that the stream carries; null before the session ends.
    void SetSession(FetchSession* session);
    // Notes that the client has sent or taken something.
    void Touch(absl::Time now);

   private:
    StreamRegistry* registry_;
    uint64_t id_;
  };

  explicit StreamRegistry(size_t max_streams) : max_streams_(max_streams) {}

  // ResourceExhausted at the limit. `context` must live longer than the entry.
  absl::StatusOr<Entry> Add(grpc::ServerContext* context, absl::Time now);
  size_t size() const;
  size_t fetch_count() const;

  // Cancels the streams that carry no load and on which nothing has moved since `before`.
  void CancelSilent(absl::Time before);
  // Cancels the loads that have nothing to answer.
  void CancelIdleLoads();

 private:
  struct Stream {
    grpc::ServerContext* context = nullptr;
    FetchSession* session = nullptr;
    absl::Time touched_at;
  };

  const size_t max_streams_;
  mutable absl::Mutex mu_;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Stream> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice::server
