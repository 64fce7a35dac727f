// The Store service of sluice.v1: validates, calls the store, the cache and the upload table,
// answers.
//
// Thread-safe; each call runs on a thread of gRPC's, a Fetch on two. Nothing below this file and
// service_server knows gRPC.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/chunk_cache.h"
#include "server/class_gate.h"
#include "server/config.h"
#include "server/indexed_store.h"
#include "server/service_streams.h"
#include "server/store.h"
#include "server/uploads.h"
#include "sluice/v1/store.grpc.pb.h"

namespace sluice::server {

// "sluiced" and the version.
std::string ServerVersion();
// Largest message that the server accepts or sends under these limits.
uint64_t MaxMessageBytes(const Limits& limits);

class StoreService final : public v1::Store::Service {
 public:
  // `store` and `cache` must live longer.
  StoreService(
      Store* store, ChunkCache* cache, const Limits& limits,
      Clock clock = [] { return absl::Now(); });

  // Forgets expired uploads, stalled streams and profiles without use; call about once a second.
  void Tick();
  // From now on new work is refused with UNAVAILABLE; loads and uploads in progress may end.
  void StartDrain();
  // While draining: ends the streams that have nothing to do. Returns the number of the others.
  size_t EndIdleStreams();

  grpc::Status GetCapabilities(grpc::ServerContext*, const v1::GetCapabilitiesRequest*,
                               v1::GetCapabilitiesResponse*) override;
  grpc::Status Lookup(grpc::ServerContext*, const v1::LookupRequest*, v1::LookupResponse*) override;
  grpc::Status Fetch(grpc::ServerContext*,
                     grpc::ServerReaderWriter<v1::FetchFrame, v1::FetchRequest>*) override;
  grpc::Status BeginPut(grpc::ServerContext*, const v1::BeginPutRequest*,
                        v1::BeginPutResponse*) override;
  grpc::Status PutFrame(grpc::ServerContext*, grpc::ServerReader<v1::PutFrameRequest>*,
                        v1::PutFrameResponse*) override;
  grpc::Status CommitPut(grpc::ServerContext*, const v1::CommitPutRequest*,
                         v1::CommitPutResponse*) override;
  grpc::Status Delete(grpc::ServerContext*, const v1::DeleteRequest*, v1::DeleteResponse*) override;
  grpc::Status Pin(grpc::ServerContext*, const v1::PinRequest*, v1::PinResponse*) override;
  grpc::Status Touch(grpc::ServerContext*, const v1::TouchRequest*, v1::TouchResponse*) override;
  grpc::Status ListNamespaces(grpc::ServerContext*, const v1::ListNamespacesRequest*,
                              v1::ListNamespacesResponse*) override;
  grpc::Status ListChunks(grpc::ServerContext*, const v1::ListChunksRequest*,
                          v1::ListChunksResponse*) override;
  grpc::Status PutProfile(grpc::ServerContext*, grpc::ServerReader<v1::PutProfileRequest>*,
                          v1::PutProfileResponse*) override;
  grpc::Status GetProfile(grpc::ServerContext*, const v1::GetProfileRequest*,
                          grpc::ServerWriter<v1::ProfileFrame>*) override;
  grpc::Status Stats(grpc::ServerContext*, const v1::StatsRequest*, v1::StatsResponse*) override;

 private:
  using FetchStream = grpc::ServerReaderWriter<v1::FetchFrame, v1::FetchRequest>;

  // Unavailable while draining.
  absl::Status Gate() const;
  absl::Status DoLookup(const v1::LookupRequest& request, v1::LookupResponse& response);
  absl::Status DoFetch(grpc::ServerContext* context, FetchStream* stream);
  absl::Status ReceiveAsks(FetchStream* stream, FetchSession& session);
  // Returns the payload bytes sent.
  uint64_t SendFrames(FetchStream* stream, FetchSession& session);
  absl::Status DoBeginPut(const v1::BeginPutRequest& request, v1::BeginPutResponse& response);
  absl::Status DoPutFrames(grpc::ServerContext* context,
                           grpc::ServerReader<v1::PutFrameRequest>* reader,
                           v1::PutFrameResponse& response);
  absl::Status DoPutProfile(grpc::ServerContext* context,
                            grpc::ServerReader<v1::PutProfileRequest>* reader,
                            v1::PutProfileResponse& response);
  absl::Status DoGetProfile(grpc::ServerContext* context, const v1::GetProfileRequest& request,
                            grpc::ServerWriter<v1::ProfileFrame>* writer);
  absl::Status DoDelete(const v1::DeleteRequest& request, v1::DeleteResponse& response);
  absl::Status DoListChunks(const v1::ListChunksRequest& request, v1::ListChunksResponse& response);

  Store* const store_;
  ChunkCache* const cache_;
  const Limits limits_;
  const Clock clock_;
  const absl::Time started_at_;
  UploadTable uploads_;
  ClassGate class_gate_;
  StreamRegistry streams_;
  std::atomic<bool> draining_ = false;
  std::atomic<uint64_t> lookup_keys_ = 0;
  std::atomic<uint64_t> lookup_found_ = 0;
  std::atomic<uint64_t> sent_bytes_ = 0;
  std::atomic<uint64_t> received_bytes_ = 0;
  std::atomic<uint64_t> committed_chunks_ = 0;
  std::atomic<uint64_t> damaged_ = 0;
};

}  // namespace sluice::server
