#include "client/fetch_link.h"

#include <utility>

#include "codec/status_macros.h"

namespace sluice::client {
namespace {

void ReadFrames(FetchStream& stream, LoadEvents& events) {
  while (true) {
    absl::StatusOr<FetchFrame> frame = stream.Next();
    if (!frame.ok()) {
      events.Push(StreamEnded{frame.status()});
      return;
    }
    events.PushFrame(*std::move(frame));
  }
}

}  // namespace

FetchLink::FetchLink(RemoteStore& store, LoadEvents& events, const codec::Digest& namespace_digest,
                     std::string load_id, absl::Time deadline)
    : store_(store),
      events_(events),
      namespace_digest_(namespace_digest),
      load_id_(std::move(load_id)),
      deadline_(deadline) {}

FetchLink::~FetchLink() { Close(); }

absl::Status FetchLink::Open() {
  Close();
  ASSIGN_OR_RETURN(stream_, store_.OpenFetch(namespace_digest_, load_id_, deadline_));
  reader_ = std::thread([this] { ReadFrames(*stream_, events_); });
  return absl::OkStatus();
}

void FetchLink::Ask(const FetchAsk& ask) {
  if (stream_ != nullptr) stream_->Ask(ask).IgnoreError();
}

void FetchLink::Cancel(uint32_t ask_id) {
  if (stream_ != nullptr) stream_->Cancel(ask_id).IgnoreError();
}

void FetchLink::Abort() {
  if (stream_ != nullptr) stream_->Close();
}

void FetchLink::Close() {
  Abort();
  if (reader_.joinable()) reader_.join();
  stream_ = nullptr;
}

}  // namespace sluice::client
