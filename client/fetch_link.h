// The stream of one load and the thread that reads it into the load's events.
//
// One thread at a time; the reader is its own.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/load_events.h"
#include "client/remote_store.h"

namespace sluice::client {

class FetchLink {
 public:
  // `store` and `events` must outlive it. The stream ends at `deadline`.
  FetchLink(RemoteStore& store, LoadEvents& events, const codec::Digest& namespace_digest,
            std::string load_id, absl::Time deadline);
  ~FetchLink();  // closes

  // Opens the stream, or opens it again after it has ended. Frames and then one StreamEnded follow.
  absl::Status Open();
  // A stream on which these fail is broken: StreamEnded follows with the reason.
  void Ask(const FetchAsk& ask);
  void Cancel(uint32_t ask_id);
  // Ends the stream; StreamEnded follows.
  void Abort();
  // Ends the stream and waits for the reader, which is not blocked. REQUIRES: no room is waited
  // for, that is LoadEvents::Close() was called or StreamEnded was taken.
  void Close();

 private:
  RemoteStore& store_;
  LoadEvents& events_;
  const codec::Digest namespace_digest_;
  const std::string load_id_;
  const absl::Time deadline_;
  std::unique_ptr<FetchStream> stream_;
  std::thread reader_;
};

}  // namespace sluice::client
