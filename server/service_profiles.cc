// Profiles in and out, a frame at a time: a stream never holds more of one than that.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"
#include "server/service.h"
#include "server/service_status.h"
#include "server/validate.h"

namespace sluice::server {

namespace {

// Of a frame that is sent; many streams may stand still with one each.
constexpr uint32_t kSentFrameBytes = 256 << 10;

}  // namespace

grpc::Status StoreService::PutProfile(grpc::ServerContext* context,
                                      grpc::ServerReader<v1::PutProfileRequest>* reader,
                                      v1::PutProfileResponse* response) {
  const absl::Status status = DoPutProfile(context, reader, *response);
  damaged_ += absl::IsDataLoss(status);
  return ToGrpc(status);
}

absl::Status StoreService::DoPutProfile(grpc::ServerContext* context,
                                        grpc::ServerReader<v1::PutProfileRequest>* reader,
                                        v1::PutProfileResponse& response) {
  RETURN_IF_ERROR(Gate());
  ASSIGN_OR_RETURN(StreamRegistry::Entry entry, streams_.Add(context, clock_()));
  v1::PutProfileRequest request;
  if (!reader->Read(&request))
    return absl::InvalidArgumentError("frame: a stream has at least one");
  ASSIGN_OR_RETURN(const ProfileOpening opening, ReadPutProfile(request, limits_));
  ASSIGN_OR_RETURN(BeginPutResult begun, store_->BeginPutProfile(opening.id, opening.total_bytes));
  response.set_already_stored(begun.already_stored);
  if (begun.already_stored) return absl::OkStatus();
  uint64_t received = 0;
  do {
    entry.Touch(clock_());
    RETURN_IF_ERROR(CheckProfileFrame(request.frame(), received, limits_));
    const std::string& payload = request.frame().payload();
    RETURN_IF_ERROR(begun.session->Append(std::as_bytes(std::span(payload))));
    received += payload.size();
    received_bytes_ += payload.size();
  } while (reader->Read(&request));
  ASSIGN_OR_RETURN(const CommitResult result, begun.session->Commit());
  response.set_already_stored(result == CommitResult::kAlreadyStored);
  spdlog::info("event=profile_stored id={} bytes={}", codec::DigestHex(opening.id), received);
  return absl::OkStatus();
}

grpc::Status StoreService::GetProfile(grpc::ServerContext* context,
                                      const v1::GetProfileRequest* request,
                                      grpc::ServerWriter<v1::ProfileFrame>* writer) {
  return ToGrpc(DoGetProfile(context, *request, writer));
}

absl::Status StoreService::DoGetProfile(grpc::ServerContext* context,
                                        const v1::GetProfileRequest& request,
                                        grpc::ServerWriter<v1::ProfileFrame>* writer) {
  RETURN_IF_ERROR(Gate());
  ASSIGN_OR_RETURN(const Digest id, codec::DigestFromBytes(request.profile_id(), "profile_id"));
  ASSIGN_OR_RETURN(StreamRegistry::Entry entry, streams_.Add(context, clock_()));
  ASSIGN_OR_RETURN(const auto reader, store_->OpenProfile(id));
  const uint64_t total_bytes = reader->profile()->bytes;
  const uint64_t frame_bytes = std::min(limits_.max_frame_bytes, kSentFrameBytes);
  codec::Sha256Stream digest;
  absl::Status read;
  v1::ProfileFrame frame;
  for (uint64_t offset = 0; offset < total_bytes; offset += frame.payload().size()) {
    frame.mutable_payload()->resize(std::min(frame_bytes, total_bytes - offset));
    const auto bytes = std::as_writable_bytes(std::span(*frame.mutable_payload()));
    read = reader->Read(offset, bytes);
    if (!read.ok()) break;
    digest.Append(bytes);
    frame.set_offset(offset);
    frame.set_total_bytes(total_bytes);
    frame.set_checksum(codec::Checksum(bytes));
    if (!writer->Write(frame)) return absl::CancelledError("the client has gone");
    entry.Touch(clock_());  // a client that does not read is silent
    sent_bytes_ += bytes.size();
  }
  if (read.ok() && digest.Finish() != id) {
    read = absl::DataLossError(absl::StrCat("profile ", codec::DigestHex(id), " is damaged"));
  }
  if (!absl::IsDataLoss(read)) return read;
  ++damaged_;
  store_->RemoveDamagedProfile(reader->profile());
  return read;
}

}  // namespace sluice::server
