// The two calls of StoreService that carry payload: Fetch and PutFrame.
#include <spdlog/spdlog.h>

#include <string>
#include <thread>
#include <utility>

#include "codec/status_macros.h"
#include "server/fetch_session.h"
#include "server/service.h"
#include "server/service_status.h"
#include "server/validate.h"

namespace sluice::server {

grpc::Status StoreService::Fetch(grpc::ServerContext* context, FetchStream* stream) {
  return ToGrpc(DoFetch(context, stream));
}

absl::Status StoreService::DoFetch(grpc::ServerContext* context, FetchStream* stream) {
  RETURN_IF_ERROR(Gate());
  const absl::Time begun_at = clock_();
  ASSIGN_OR_RETURN(StreamRegistry::Entry entry, streams_.Add(context, begun_at));
  v1::FetchRequest request;
  if (!stream->Read(&request) || !request.has_open()) {
    return absl::InvalidArgumentError("open: must be the first message of the stream");
  }
  ASSIGN_OR_RETURN(const FetchOpening opening, ReadFetchOpen(request.open()));
  FetchSession session(store_, cache_,
                       {opening.namespace_digest, limits_.max_frame_bytes,
                        limits_.max_asks_in_flight, clock_, &class_gate_});
  entry.SetSession(&session);
  uint64_t sent = 0;
  std::thread writer([&] { sent = SendFrames(stream, session); });
  const absl::Status status = ReceiveAsks(stream, session);
  if (!status.ok() || context->IsCancelled()) {
    session.Abort();
  } else {
    session.CloseInput();
  }
  writer.join();
  entry.SetSession(nullptr);
  // A client ends a load by cancelling; that cuts something short only if an answer was due.
  const bool cut_short = context->IsCancelled() && !session.idle();
  spdlog::info("event=load id=\"{}\" bytes={} ms={:.1f} status={}", opening.load_id, sent,
               absl::ToDoubleMilliseconds(clock_() - begun_at),
               cut_short ? "CANCELLED" : absl::StatusCodeToString(status.code()));
  return status;
}

absl::Status StoreService::ReceiveAsks(FetchStream* stream, FetchSession& session) {
  v1::FetchRequest request;
  while (stream->Read(&request)) {
    switch (request.say_case()) {
      case v1::FetchRequest::kAsk: {
        ASSIGN_OR_RETURN(const Ask ask, ReadFetchAsk(request.ask(), clock_()));
        RETURN_IF_ERROR(session.AddAsk(ask));
        break;
      }
      case v1::FetchRequest::kCancel:
        session.Cancel(request.cancel().ask_id());
        break;
      case v1::FetchRequest::kOpen:
        return absl::InvalidArgumentError("open: a stream is opened once");
      case v1::FetchRequest::SAY_NOT_SET:
        return absl::InvalidArgumentError("say: must be set");
    }
  }
  return absl::OkStatus();
}

uint64_t StoreService::SendFrames(FetchStream* stream, FetchSession& session) {
  Frame frame;
  v1::FetchFrame message;
  uint64_t sent = 0;
  while (session.NextFrame(&frame)) {
    message.set_ask_id(frame.ask_id);
    message.set_offset(frame.offset);
    message.set_checksum(codec::Checksum(std::as_bytes(std::span(frame.payload))));
    message.set_last(frame.last);
    message.set_result(static_cast<v1::FetchResult>(frame.result));
    message.set_message(frame.message);
    message.set_queue_delay_us(frame.queue_delay_us);
    damaged_ += frame.result == FetchResult::kDamaged;
    // Lent to the message and taken back, so that the bytes are copied once and the memory is
    // reused.
    message.mutable_payload()->swap(frame.payload);
    const bool written = stream->Write(message);
    message.mutable_payload()->swap(frame.payload);
    if (!written) {
      session.Abort();
      break;
    }
    sent += frame.payload.size();
    sent_bytes_ += frame.payload.size();
  }
  return sent;
}

grpc::Status StoreService::PutFrame(grpc::ServerContext* context,
                                    grpc::ServerReader<v1::PutFrameRequest>* reader,
                                    v1::PutFrameResponse* response) {
  const absl::Status status = DoPutFrames(context, reader, *response);
  damaged_ += absl::IsDataLoss(status);
  return ToGrpc(status);
}

absl::Status StoreService::DoPutFrames(grpc::ServerContext* context,
                                       grpc::ServerReader<v1::PutFrameRequest>* reader,
                                       v1::PutFrameResponse& response) {
  ASSIGN_OR_RETURN(StreamRegistry::Entry entry, streams_.Add(context, clock_()));
  v1::PutFrameRequest request;
  uint64_t upload_id = 0;
  while (reader->Read(&request)) {
    const absl::Time now = clock_();
    entry.Touch(now);
    RETURN_IF_ERROR(CheckPutFrame(request, limits_));
    if (upload_id == 0) upload_id = request.upload_id();
    if (request.upload_id() != upload_id) {
      return absl::InvalidArgumentError("upload_id: a stream carries one upload");
    }
    const std::span<const std::byte> payload = std::as_bytes(std::span(request.payload()));
    ASSIGN_OR_RETURN(const uint64_t received,
                     uploads_.Append(upload_id, request.offset(), payload, now));
    response.set_received_bytes(received);
    received_bytes_ += payload.size();
  }
  return absl::OkStatus();
}

}  // namespace sluice::server
