#include "client/remote_fetch.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/grpc_status.h"
#include "client/store_channel.h"

namespace sluice::client {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

absl::Status AskStatus(const v1::FetchFrame& frame) {
  const std::string message = frame.message().substr(0, kMaxPeerMessageBytes);
  switch (frame.result()) {
    case v1::FETCH_OK:
      return absl::OkStatus();
    case v1::FETCH_NOT_FOUND:
      return absl::NotFoundError(message);
    case v1::FETCH_DAMAGED:
      return absl::DataLossError(message);
    case v1::FETCH_LATE:
      return absl::DeadlineExceededError(message);
    case v1::FETCH_CANCELLED:
      return absl::CancelledError(message);
    case v1::FETCH_BUSY:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnknownError(absl::StrCat("result ", frame.result(), ": ", message));
  }
}

absl::Status CheckPayload(const v1::FetchFrame& frame) {
  if (frame.payload().size() > kMaxReceivedFrameBytes) {
    return absl::DataLossError(absl::StrCat("frame of ", frame.payload().size(), " bytes; at most ",
                                            kMaxReceivedFrameBytes, " are allowed"));
  }
  if (codec::Checksum(AsBytes(frame.payload())) != frame.checksum()) {
    return absl::DataLossError(absl::StrCat("checksum of the frame at offset ", frame.offset()));
  }
  return absl::OkStatus();
}

FetchFrame ToFrame(v1::FetchFrame& message) {
  FetchFrame frame;
  frame.ask_id = message.ask_id();
  frame.offset = message.offset();
  frame.last = message.last();
  frame.queue_delay_us = message.queue_delay_us();
  frame.status = AskStatus(message);
  if (frame.status.ok() && !message.payload().empty()) frame.status = CheckPayload(message);
  if (frame.status.ok()) frame.payload = std::move(*message.mutable_payload());
  return frame;
}

class GrpcFetchStream final : public FetchStream {
 public:
  GrpcFetchStream(v1::Store::Stub& stub, std::string what, absl::Time deadline)
      : what_(std::move(what)) {
    SetDeadline(context_, deadline);
    stream_ = stub.Fetch(&context_);
  }

  ~GrpcFetchStream() override {
    Close();
    v1::FetchFrame rest;
    while (stream_->Read(&rest)) {
    }
    (void)FinalStatus();
  }

  absl::Status Open(const codec::Digest& namespace_digest, const std::string& load_id) {
    v1::FetchRequest request;
    request.mutable_open()->set_namespace_digest(std::string(codec::DigestBytes(namespace_digest)));
    request.mutable_open()->set_load_id(load_id);
    if (stream_->Write(request)) return absl::OkStatus();
    v1::FetchFrame frame;
    while (stream_->Read(&frame)) {
    }
    return FinalStatus();
  }

  absl::Status Ask(const FetchAsk& ask) override {
    v1::FetchRequest request;
    v1::FetchAsk* message = request.mutable_ask();
    message->set_ask_id(ask.ask_id);
    message->set_chunk_key(std::string(codec::DigestBytes(ask.chunk_key)));
    message->set_with_header(ask.with_header);
    message->set_first_layer(ask.first_layer);
    message->set_num_layers(ask.num_layers);
    message->set_deadline_ms(ask.deadline_ms);
    message->set_fetch_class(ask.fetch_class == FetchClass::kBase ? v1::FETCH_CLASS_BASE
                                                                  : v1::FETCH_CLASS_REFINEMENT);
    return Write(request);
  }

  absl::Status Cancel(uint32_t ask_id) override {
    v1::FetchRequest request;
    request.mutable_cancel()->set_ask_id(ask_id);
    return Write(request);
  }

  absl::StatusOr<FetchFrame> Next() override {
    v1::FetchFrame message;
    if (!stream_->Read(&message)) return FinalStatus();
    return ToFrame(message);
  }

  void Close() override {
    closed_.store(true);
    context_.TryCancel();
  }

 private:
  // Never OK. Only called once nothing more can be read, by the thread that reads.
  absl::Status FinalStatus() {
    if (final_.ok()) {
      final_ = FromGrpc(stream_->Finish(), what_);
      if (closed_.load()) final_ = absl::CancelledError(absl::StrCat(what_, ": closed"));
      if (final_.ok())
        final_ = absl::UnavailableError(absl::StrCat(what_, ": the server ended it"));
    }
    return final_;
  }

  // The reason for a failed write is what Next() returns.
  absl::Status Write(const v1::FetchRequest& request) {
    if (stream_->Write(request)) return absl::OkStatus();
    return closed_.load() ? absl::CancelledError(absl::StrCat(what_, ": closed"))
                          : absl::UnavailableError(absl::StrCat(what_, ": the stream is broken"));
  }

  const std::string what_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::FetchRequest, v1::FetchFrame>> stream_;
  std::atomic<bool> closed_ = false;
  absl::Status final_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FetchStream>> OpenFetchStream(v1::Store::Stub& stub,
                                                             const codec::Digest& namespace_digest,
                                                             const std::string& load_id,
                                                             std::string what,
                                                             absl::Time deadline) {
  auto stream = std::make_unique<GrpcFetchStream>(stub, std::move(what), deadline);
  if (absl::Status status = stream->Open(namespace_digest, load_id); !status.ok()) return status;
  return stream;
}

}  // namespace sluice::client
