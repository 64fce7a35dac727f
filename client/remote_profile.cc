#include "client/remote_profile.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/grpc_status.h"
#include "client/store_channel.h"
#include "codec/container.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

constexpr std::chrono::milliseconds kCancelPoll(10);
// Taken at once for a profile whose size only the server has told; more comes with its bytes.
constexpr uint64_t kTrustedBytes = uint64_t{64} << 20;

// One call, whose operations are waited for one after the other.
struct Call {
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const std::function<bool()>& cancelled;

  Call(absl::Time deadline, const std::function<bool()>& cancelled) : cancelled(cancelled) {
    SetDeadline(context, deadline);
  }
  ~Call() {
    queue.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue.Next(&tag, &ok)) {
    }
  }

  // True if the operation that is under way has succeeded. The call's deadline bounds the wait.
  bool Await() {
    void* tag = nullptr;
    bool ok = false;
    while (queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kCancelPoll) ==
           grpc::CompletionQueue::TIMEOUT) {
      if (cancelled && cancelled()) context.TryCancel();
    }
    return ok;
  }
};

// Puts the frames of a profile together.
class Assembly {
 public:
  Assembly(const codec::Digest& id, uint64_t max_bytes) : id_(id), max_bytes_(max_bytes) {}

  absl::Status Append(const v1::ProfileFrame& frame) {
    const std::string& payload = frame.payload();
    if (bytes_.empty()) total_bytes_ = frame.total_bytes();
    if (total_bytes_ > max_bytes_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("it has ", total_bytes_, " bytes, more than ", max_bytes_));
    }
    if (frame.total_bytes() != total_bytes_ || frame.offset() != bytes_.size() || payload.empty() ||
        payload.size() > kMaxReceivedFrameBytes || payload.size() > total_bytes_ - bytes_.size()) {
      return absl::DataLossError(absl::StrCat(
          "a frame at ", frame.offset(), " of ", frame.total_bytes(), " with ", payload.size(),
          " bytes, where ", bytes_.size(), " of ", total_bytes_, " had come"));
    }
    if (codec::Checksum(std::as_bytes(std::span(payload))) != frame.checksum()) {
      return absl::DataLossError(absl::StrCat("checksum of the frame at ", frame.offset()));
    }
    if (bytes_.empty()) bytes_.reserve(std::min(total_bytes_, kTrustedBytes));
    bytes_ += payload;
    digest_.Append(std::as_bytes(std::span(payload)));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Finish() {
    if (digest_.Finish() == id_) return std::move(bytes_);
    return absl::DataLossError(absl::StrCat("its digest is not ", codec::DigestHex(id_), " after ",
                                            bytes_.size(), " of ", total_bytes_, " bytes"));
  }

 private:
  const codec::Digest id_;
  const uint64_t max_bytes_;
  uint64_t total_bytes_ = 0;
  std::string bytes_;
  codec::Sha256Stream digest_;
};

absl::Status Named(const absl::Status& status, const std::string& what) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::string> ReceiveProfile(v1::Store::Stub& stub, const codec::Digest& id,
                                           uint64_t max_bytes, const std::string& what,
                                           absl::Time deadline,
                                           const std::function<bool()>& cancelled) {
  Call call(deadline, cancelled);
  v1::GetProfileRequest request;
  request.set_profile_id(std::string(codec::DigestBytes(id)));
  const auto reader = stub.PrepareAsyncGetProfile(&call.context, request, &call.queue);
  reader->StartCall(nullptr);
  Assembly assembly(id, max_bytes);
  v1::ProfileFrame frame;
  absl::Status fault;
  for (bool running = call.Await(); running && fault.ok();) {
    reader->Read(&frame, nullptr);
    running = call.Await();
    if (running) fault = assembly.Append(frame);
  }
  if (!fault.ok()) call.context.TryCancel();
  grpc::Status status;
  reader->Finish(&status, nullptr);
  call.Await();
  RETURN_IF_ERROR(Named(fault, what));
  RETURN_IF_ERROR(FromGrpc(status, what));
  absl::StatusOr<std::string> bytes = assembly.Finish();
  RETURN_IF_ERROR(Named(bytes.status(), what));
  return bytes;
}

absl::StatusOr<uint64_t> SendProfile(v1::Store::Stub& stub, const codec::Digest& id,
                                     std::string_view bytes, size_t frame_bytes,
                                     const std::string& what, absl::Time deadline,
                                     const std::function<bool()>& cancelled) {
  Call call(deadline, cancelled);
  v1::PutProfileResponse response;
  const auto writer = stub.PrepareAsyncPutProfile(&call.context, &response, &call.queue);
  writer->StartCall(nullptr);
  bool running = call.Await();
  v1::PutProfileRequest request;
  request.set_profile_id(std::string(codec::DigestBytes(id)));
  v1::ProfileFrame& frame = *request.mutable_frame();
  frame.set_total_bytes(bytes.size());
  for (size_t offset = 0; running && offset < bytes.size(); offset += frame_bytes) {
    const std::string_view payload = bytes.substr(offset, frame_bytes);
    frame.set_offset(offset);
    frame.set_payload(payload.data(), payload.size());
    frame.set_checksum(codec::Checksum(std::as_bytes(std::span(payload))));
    writer->Write(request, nullptr);
    running = call.Await();  // if not, Finish says why
    request.clear_profile_id();
  }
  if (running) {
    writer->WritesDone(nullptr);
    call.Await();
  }
  grpc::Status status;
  writer->Finish(&status, nullptr);
  call.Await();
  RETURN_IF_ERROR(FromGrpc(status, what));
  return response.already_stored() ? 0 : bytes.size();
}

}  // namespace sluice::client
