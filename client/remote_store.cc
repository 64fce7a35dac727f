#include "client/remote_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/grpc_status.h"
#include "client/manifest_check.h"
#include "client/remote_fetch.h"
#include "client/remote_profile.h"
#include "client/store_channel.h"
#include "codec/status_macros.h"
#include "sluice/v1/store.grpc.pb.h"

namespace sluice::client {
namespace {

// Keys in one request at most, whatever the server would take: its answer must fit into a message.
constexpr uint32_t kMaxKeysPerLookup = 4096;

// A profile that was put may be dropped before it is used, when another writer's put has failed.
constexpr int kMaxProfileAttempts = 3;

using Cancelled = std::function<bool()>;
constexpr std::chrono::milliseconds kCancelPoll(10);

// Finishes a prepared call, or cancels it when `cancelled` says so.
template <typename Response>
grpc::Status Finish(grpc::ClientAsyncResponseReader<Response>& call, grpc::ClientContext& context,
                    grpc::CompletionQueue& queue, Response& response, const Cancelled& cancelled) {
  grpc::Status status;
  call.StartCall();
  call.Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  // The call's deadline bounds the wait.
  while (queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kCancelPoll) ==
         grpc::CompletionQueue::TIMEOUT) {
    if (cancelled && cancelled()) context.TryCancel();
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

void FillDescriptor(const codec::NamespaceDescriptor& descriptor,
                    v1::NamespaceDescriptor* message) {
  message->set_model(descriptor.model);
  message->set_revision(descriptor.revision);
  message->set_adapter(descriptor.adapter);
  message->set_tenant(descriptor.tenant);
  message->set_salt(descriptor.salt);
  message->set_chunk_tokens(descriptor.chunk_tokens);
  message->set_profile_id(std::string(codec::DigestBytes(descriptor.profile_id)));
}

size_t FrameBytes(const ServerCapabilities& limits) {
  return limits.max_frame_bytes == 0 ? kMaxFrameBytes
                                     : std::min<size_t>(limits.max_frame_bytes, kMaxFrameBytes);
}

class GrpcRemoteStore final : public RemoteStore {
 public:
  explicit GrpcRemoteStore(const std::string& address)
      : address_(address), stub_(v1::Store::NewStub(MakeStoreChannel(address))) {}

  const std::string& address() const override { return address_; }

  absl::StatusOr<ServerCapabilities> GetCapabilities(absl::Time deadline) override {
    return AskCapabilities(deadline, nullptr);
  }

  absl::StatusOr<std::vector<ChunkManifest>> Lookup(const codec::Digest& namespace_digest,
                                                    std::span<const codec::Digest> keys,
                                                    absl::Time deadline,
                                                    const Cancelled& cancelled) override {
    std::vector<ChunkManifest> manifests;
    if (keys.empty()) return manifests;
    ASSIGN_OR_RETURN(const ServerCapabilities limits, CachedCapabilities(deadline, cancelled));
    const size_t step = std::clamp(limits.max_keys_per_request, 1u, kMaxKeysPerLookup);
    manifests.reserve(keys.size());
    for (size_t first = 0; first < keys.size(); first += step) {
      const auto part = keys.subspan(first, std::min(step, keys.size() - first));
      RETURN_IF_ERROR(
          ForgetLimitsOnError(LookupPart(namespace_digest, part, deadline, cancelled, manifests)));
    }
    return manifests;
  }

  absl::StatusOr<std::unique_ptr<FetchStream>> OpenFetch(const codec::Digest& namespace_digest,
                                                         const std::string& load_id,
                                                         absl::Time deadline) override {
    return OpenFetchStream(*stub_, namespace_digest, load_id, What("fetch"), deadline);
  }

  absl::StatusOr<PutResult> Put(const ChunkPut& chunk, absl::Time deadline) override {
    v1::BeginPutRequest announcement;
    FillDescriptor(chunk.descriptor, announcement.mutable_namespace_());
    announcement.set_chunk_key(std::string(codec::DigestBytes(chunk.chunk_key)));
    if (chunk.parent_key) {
      announcement.set_parent_key(std::string(codec::DigestBytes(*chunk.parent_key)));
    }
    announcement.set_total_bytes(chunk.container.size());
    ASSIGN_OR_RETURN(const v1::BeginPutResponse begun, BeginPut(announcement, deadline));
    if (begun.profile_needed()) return PutResult{.profile_needed = true};
    if (begun.already_stored()) return PutResult{.already_stored = true};
    RETURN_IF_ERROR(ForgetLimitsOnError(SendFrames(begun.upload_id(), chunk.container, deadline)));
    return Commit(begun.upload_id(), chunk.container.size(), deadline);
  }

  absl::StatusOr<uint64_t> PutProfile(const codec::Digest& id, std::string_view bytes,
                                      absl::Time deadline, const Cancelled& cancelled) override {
    ASSIGN_OR_RETURN(const ServerCapabilities limits, CachedCapabilities(deadline, cancelled));
    if (bytes.size() > limits.max_profile_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(What("put profile"), ": the profile has ", bytes.size(),
                       " bytes; the server takes at most ", limits.max_profile_bytes));
    }
    auto sent = SendProfile(*stub_, id, bytes, FrameBytes(limits), What("put profile"), deadline,
                            cancelled);
    RETURN_IF_ERROR(ForgetLimitsOnError(sent.status()));
    return sent;
  }

  absl::StatusOr<std::string> GetProfile(const codec::Digest& id, uint64_t max_bytes,
                                         absl::Time deadline, const Cancelled& cancelled) override {
    return ReceiveProfile(*stub_, id, max_bytes, What("get profile"), deadline, cancelled);
  }

 private:
  std::string What(const char* call) const { return absl::StrCat(call, " at ", address_); }

  absl::StatusOr<ServerCapabilities> AskCapabilities(absl::Time deadline,
                                                     const Cancelled& cancelled) {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    grpc::CompletionQueue queue;
    v1::GetCapabilitiesResponse response;
    const auto call = stub_->PrepareAsyncGetCapabilities(&context, {}, &queue);
    RETURN_IF_ERROR(
        FromGrpc(Finish(*call, context, queue, response, cancelled), What("capabilities")));
    ServerCapabilities capabilities;
    capabilities.server = response.server().substr(0, kMaxPeerMessageBytes);
    capabilities.container_version = response.container_version();
    capabilities.max_frame_bytes = response.max_frame_bytes();
    capabilities.max_keys_per_request = response.max_keys_per_request();
    capabilities.max_chunk_bytes = response.max_chunk_bytes();
    capabilities.max_asks_in_flight = response.max_asks_in_flight();
    capabilities.max_profile_bytes = response.max_profile_bytes();
    return capabilities;
  }

  // The server's limits, asked once and again after a failure (it may have been restarted with
  // others).
  absl::StatusOr<ServerCapabilities> CachedCapabilities(absl::Time deadline,
                                                        const Cancelled& cancelled) {
    {
      absl::MutexLock lock(&mutex_);
      if (limits_) return *limits_;
    }
    ASSIGN_OR_RETURN(const ServerCapabilities limits, AskCapabilities(deadline, cancelled));
    absl::MutexLock lock(&mutex_);
    limits_ = limits;
    return limits;
  }

  absl::Status ForgetLimitsOnError(absl::Status status) {
    if (!status.ok()) {
      absl::MutexLock lock(&mutex_);
      limits_.reset();
    }
    return status;
  }

  absl::Status LookupPart(const codec::Digest& namespace_digest,
                          std::span<const codec::Digest> keys, absl::Time deadline,
                          const Cancelled& cancelled, std::vector<ChunkManifest>& manifests) {
    v1::LookupRequest request;
    request.set_namespace_digest(std::string(codec::DigestBytes(namespace_digest)));
    for (const codec::Digest& key : keys)
      request.add_chunk_keys(std::string(codec::DigestBytes(key)));
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    grpc::CompletionQueue queue;
    v1::LookupResponse response;
    const auto call = stub_->PrepareAsyncLookup(&context, request, &queue);
    RETURN_IF_ERROR(FromGrpc(Finish(*call, context, queue, response, cancelled), What("lookup")));
    if (response.chunks_size() != static_cast<int>(keys.size())) {
      return absl::DataLossError(absl::StrCat(What("lookup"), ": ", keys.size(), " keys asked, ",
                                              response.chunks_size(), " answered"));
    }
    for (const v1::ChunkManifest& chunk : response.chunks()) {
      ASSIGN_OR_RETURN(ChunkManifest manifest, CheckedManifest(chunk));
      manifests.push_back(std::move(manifest));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<v1::BeginPutResponse> BeginPut(const v1::BeginPutRequest& request,
                                                absl::Time deadline) {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    v1::BeginPutResponse response;
    RETURN_IF_ERROR(FromGrpc(stub_->BeginPut(&context, request, &response), What("begin put")));
    return response;
  }

  absl::Status SendFrames(uint64_t upload_id, std::string_view container, absl::Time deadline) {
    ASSIGN_OR_RETURN(const ServerCapabilities limits, CachedCapabilities(deadline, nullptr));
    const size_t frame_bytes = FrameBytes(limits);
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    v1::PutFrameResponse response;
    auto writer = stub_->PutFrame(&context, &response);
    for (size_t offset = 0; offset < container.size(); offset += frame_bytes) {
      const std::string_view payload = container.substr(offset, frame_bytes);
      v1::PutFrameRequest frame;
      frame.set_upload_id(upload_id);
      frame.set_offset(offset);
      frame.set_payload(payload.data(), payload.size());
      frame.set_checksum(codec::Checksum(std::as_bytes(std::span(payload))));
      if (!writer->Write(frame)) break;  // Finish says why
    }
    writer->WritesDone();
    RETURN_IF_ERROR(FromGrpc(writer->Finish(), What("put frames")));
    if (response.received_bytes() != container.size()) {
      return absl::DataLossError(absl::StrCat(What("put frames"), ": ", container.size(),
                                              " bytes sent, ", response.received_bytes(),
                                              " received"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PutResult> Commit(uint64_t upload_id, uint64_t sent_bytes, absl::Time deadline) {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    v1::CommitPutRequest request;
    request.set_upload_id(upload_id);
    v1::CommitPutResponse response;
    RETURN_IF_ERROR(FromGrpc(stub_->CommitPut(&context, request, &response), What("commit put")));
    return PutResult{.already_stored = response.already_stored(), .sent_bytes = sent_bytes};
  }

  const std::string address_;
  const std::unique_ptr<v1::Store::Stub> stub_;
  absl::Mutex mutex_;
  std::optional<ServerCapabilities> limits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<PutResult> PutWithProfile(
    RemoteStore& store, const ChunkPut& chunk,
    const std::function<absl::StatusOr<std::string_view>()>& profile_bytes,
    const PutTimeouts& timeouts, const std::function<bool()>& cancelled) {
  for (int attempt = 1;; ++attempt) {
    ASSIGN_OR_RETURN(const PutResult put, store.Put(chunk, absl::Now() + timeouts.chunk));
    if (!put.profile_needed) return put;
    if (attempt == kMaxProfileAttempts) {
      return absl::AbortedError(absl::StrCat("put at ", store.address(), ": the server has taken ",
                                             "the profile and asks for it again"));
    }
    ASSIGN_OR_RETURN(const std::string_view bytes, profile_bytes());
    RETURN_IF_ERROR(store
                        .PutProfile(chunk.descriptor.profile_id, bytes,
                                    absl::Now() + timeouts.profile, cancelled)
                        .status());
  }
}

std::unique_ptr<RemoteStore> RemoteStore::Create(const std::string& address) {
  return std::make_unique<GrpcRemoteStore>(address);
}

}  // namespace sluice::client
