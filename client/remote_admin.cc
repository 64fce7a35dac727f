#include "client/remote_admin.h"

#include <grpcpp/generic/generic_stub.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/grpc_status.h"
#include "client/store_channel.h"
#include "codec/status_macros.h"
#include "sluice/v1/store.grpc.pb.h"

namespace sluice::client {
namespace {

void FillSelector(const ChunkSelector& selector, v1::Selector* message) {
  message->set_namespace_digest(std::string(codec::DigestBytes(selector.namespace_digest)));
  for (const codec::Digest& key : selector.chunk_keys) {
    message->add_chunk_keys(std::string(codec::DigestBytes(key)));
  }
  message->set_idle_at_least_ms(selector.idle_at_least_ms);
}

absl::StatusOr<NamespaceInfo> ToNamespaceInfo(const v1::NamespaceInfo& message) {
  NamespaceInfo info;
  ASSIGN_OR_RETURN(info.namespace_digest,
                   codec::DigestFromBytes(message.namespace_digest(), "namespace_digest"));
  const v1::NamespaceDescriptor& from = message.namespace_();
  info.descriptor.model = from.model();
  info.descriptor.revision = from.revision();
  info.descriptor.adapter = from.adapter();
  info.descriptor.tenant = from.tenant();
  info.descriptor.salt = from.salt();
  info.descriptor.chunk_tokens = from.chunk_tokens();
  ASSIGN_OR_RETURN(info.descriptor.profile_id,
                   codec::DigestFromBytes(from.profile_id(), "profile_id"));
  RETURN_IF_ERROR(info.descriptor.Validate());
  info.chunks = message.chunks();
  info.bytes = message.bytes();
  info.profile_bytes = message.profile_bytes();
  return info;
}

absl::StatusOr<ChunkInfo> ToChunkInfo(const v1::ChunkInfo& message) {
  ChunkInfo info;
  ASSIGN_OR_RETURN(info.chunk_key, codec::DigestFromBytes(message.chunk_key(), "chunk_key"));
  info.start_token = message.start_token();
  info.num_tokens = message.num_tokens();
  info.bytes = message.bytes();
  info.idle_ms = message.idle_ms();
  info.pinned = message.pinned();
  info.lossy_levels = message.lossy_levels();
  info.lossless = message.lossless();
  return info;
}

ServerStats ToStats(const v1::StatsResponse& message) {
  return ServerStats{.uptime_ms = message.uptime_ms(),
                     .namespaces = message.namespaces(),
                     .chunks = message.chunks(),
                     .disk_bytes = message.disk_bytes(),
                     .disk_quota_bytes = message.disk_quota_bytes(),
                     .cache_bytes = message.cache_bytes(),
                     .cache_limit_bytes = message.cache_limit_bytes(),
                     .cache_hits = message.cache_hits(),
                     .cache_misses = message.cache_misses(),
                     .lookup_keys = message.lookup_keys(),
                     .lookup_found = message.lookup_found(),
                     .fetch_streams = message.fetch_streams(),
                     .sent_bytes = message.sent_bytes(),
                     .received_bytes = message.received_bytes(),
                     .committed_chunks = message.committed_chunks(),
                     .evicted_chunks = message.evicted_chunks(),
                     .damaged = message.damaged(),
                     .uploads = message.uploads(),
                     .profiles = message.profiles(),
                     .profile_bytes = message.profile_bytes(),
                     .profile_quota_bytes = message.profile_quota_bytes()};
}

// grpc.health.v1.Health/Check by hand, since its messages are not packaged: the request for the
// whole server is empty, and the answer SERVING is field 1 with value 1.
grpc::Status CheckHealth(grpc::GenericStub& stub, grpc::ClientContext& context, bool& serving) {
  grpc::CompletionQueue queue;
  grpc::ByteBuffer answer;
  grpc::Status status;
  const grpc::ByteBuffer empty_request(nullptr, 0);
  auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", empty_request, &queue);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);  // the call's deadline bounds it
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  grpc::Slice bytes;
  serving = status.ok() && answer.DumpToSingleSlice(&bytes).ok() && bytes.size() == 2 &&
            bytes.begin()[0] == 0x08 && bytes.begin()[1] == 0x01;
  return status;
}

class GrpcRemoteAdmin final : public RemoteAdmin {
 public:
  explicit GrpcRemoteAdmin(const std::string& address)
      : address_(address),
        channel_(MakeStoreChannel(address)),
        stub_(v1::Store::NewStub(channel_)),
        health_(channel_) {}

  const std::string& address() const override { return address_; }

  absl::StatusOr<absl::Duration> Ping(absl::Time deadline) override {
    const absl::Time start = absl::Now();
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    bool serving = false;
    RETURN_IF_ERROR(FromGrpc(CheckHealth(health_, context, serving), What("ping")));
    if (!serving) return absl::UnavailableError(absl::StrCat(What("ping"), ": not serving"));
    return absl::Now() - start;
  }

  absl::StatusOr<DeleteResult> Delete(const ChunkSelector& selector, bool include_pinned,
                                      absl::Time deadline) override {
    v1::DeleteRequest request;
    FillSelector(selector, request.mutable_selector());
    request.set_include_pinned(include_pinned);
    v1::DeleteResponse response;
    RETURN_IF_ERROR(Call("delete", &v1::Store::Stub::Delete, request, response, deadline));
    return DeleteResult{.deleted_chunks = response.deleted_chunks(),
                        .deleted_bytes = response.deleted_bytes(),
                        .pinned_chunks = response.pinned_chunks()};
  }

  absl::StatusOr<uint64_t> Pin(const ChunkSelector& selector, bool pinned,
                               absl::Time deadline) override {
    v1::PinRequest request;
    FillSelector(selector, request.mutable_selector());
    request.set_pinned(pinned);
    v1::PinResponse response;
    RETURN_IF_ERROR(Call("pin", &v1::Store::Stub::Pin, request, response, deadline));
    return response.matched_chunks();
  }

  absl::StatusOr<uint64_t> Touch(const ChunkSelector& selector, absl::Time deadline) override {
    v1::TouchRequest request;
    FillSelector(selector, request.mutable_selector());
    v1::TouchResponse response;
    RETURN_IF_ERROR(Call("touch", &v1::Store::Stub::Touch, request, response, deadline));
    return response.matched_chunks();
  }

  absl::StatusOr<std::vector<NamespaceInfo>> ListNamespaces(absl::Time deadline) override {
    v1::ListNamespacesResponse response;
    RETURN_IF_ERROR(Call("list namespaces", &v1::Store::Stub::ListNamespaces,
                         v1::ListNamespacesRequest(), response, deadline));
    std::vector<NamespaceInfo> namespaces;
    for (const v1::NamespaceInfo& message : response.namespaces()) {
      ASSIGN_OR_RETURN(NamespaceInfo info, ToNamespaceInfo(message));
      namespaces.push_back(std::move(info));
    }
    return namespaces;
  }

  absl::StatusOr<ChunkPage> ListChunks(const codec::Digest& namespace_digest, uint32_t page_size,
                                       const std::optional<codec::Digest>& after,
                                       absl::Time deadline) override {
    v1::ListChunksRequest request;
    request.set_namespace_digest(std::string(codec::DigestBytes(namespace_digest)));
    request.set_page_size(page_size);
    if (after) request.set_after_key(std::string(codec::DigestBytes(*after)));
    v1::ListChunksResponse response;
    RETURN_IF_ERROR(Call("list chunks", &v1::Store::Stub::ListChunks, request, response, deadline));
    ChunkPage page;
    for (const v1::ChunkInfo& message : response.chunks()) {
      ASSIGN_OR_RETURN(ChunkInfo info, ToChunkInfo(message));
      page.chunks.push_back(info);
    }
    if (!response.next_after_key().empty()) {
      ASSIGN_OR_RETURN(page.next_after,
                       codec::DigestFromBytes(response.next_after_key(), "next_after_key"));
    }
    return page;
  }

  absl::StatusOr<ServerStats> Stats(absl::Time deadline) override {
    v1::StatsResponse response;
    RETURN_IF_ERROR(Call("stats", &v1::Store::Stub::Stats, v1::StatsRequest(), response, deadline));
    return ToStats(response);
  }

 private:
  std::string What(const char* call) const { return absl::StrCat(call, " at ", address_); }

  template <typename Request, typename Response>
  absl::Status Call(const char* name,
                    grpc::Status (v1::Store::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
                    const Request& request, Response& response, absl::Time deadline) {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    return FromGrpc((*stub_.*method)(&context, request, &response), What(name));
  }

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Store::Stub> stub_;
  grpc::GenericStub health_;
};

}  // namespace

std::unique_ptr<RemoteAdmin> RemoteAdmin::Create(const std::string& address) {
  return std::make_unique<GrpcRemoteAdmin>(address);
}

}  // namespace sluice::client
