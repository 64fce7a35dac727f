// A storage server in the test's own process: a real gRPC server on a free port, chunks in memory,
// and switches that make it misbehave.
#pragma once

#include <grpcpp/server.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "sluice/v1/store.grpc.pb.h"

namespace sluice::client {

class FakeStore final : public v1::Store::Service {
 public:
  // Set these before the first call.
  struct Faults {
    std::function<void(v1::GetCapabilitiesResponse&)> tamper_capabilities = nullptr;
    std::function<void(v1::LookupResponse&)> tamper_lookup = nullptr;
    std::function<void(v1::FetchFrame&)> tamper_frame = nullptr;
    std::function<void(v1::PutFrameResponse&)> tamper_received = nullptr;
    std::function<void(v1::ProfileFrame&)> tamper_profile = nullptr;
    size_t profile_frame_bytes = 1 << 18;
    int forget_profiles = 0;  // that many profiles are taken and not kept
    // Lookup, each ask and each profile are not answered before Release(), or until the call is
    // cancelled.
    bool hold = false;
    size_t frame_bytes = 1 << 20;
  };

  FakeStore();
  explicit FakeStore(Faults faults);
  ~FakeStore() override;

  const std::string& address() const { return address_; }
  void Release() { released_.Notify(); }
  // Ends the server as a crash would; the address refuses connections afterwards.
  void Kill();

  void AddChunk(const std::string& key, std::string container);
  std::string Container(const std::string& key) const;
  size_t num_chunks() const;
  // What the last BeginPut of a stored chunk said.
  v1::BeginPutRequest last_put() const;
  int num_lookups() const;
  int num_puts() const;
  // Profiles by their raw id.
  void AddProfile(const std::string& profile);
  std::string StoredProfile(const std::string& id) const;
  int num_get_profiles() const;

  grpc::Status GetCapabilities(grpc::ServerContext* context,
                               const v1::GetCapabilitiesRequest* request,
                               v1::GetCapabilitiesResponse* response) override;
  grpc::Status Lookup(grpc::ServerContext* context, const v1::LookupRequest* request,
                      v1::LookupResponse* response) override;
  grpc::Status Fetch(grpc::ServerContext* context,
                     grpc::ServerReaderWriter<v1::FetchFrame, v1::FetchRequest>* stream) override;
  grpc::Status BeginPut(grpc::ServerContext* context, const v1::BeginPutRequest* request,
                        v1::BeginPutResponse* response) override;
  grpc::Status PutFrame(grpc::ServerContext* context,
                        grpc::ServerReader<v1::PutFrameRequest>* reader,
                        v1::PutFrameResponse* response) override;
  grpc::Status CommitPut(grpc::ServerContext* context, const v1::CommitPutRequest* request,
                         v1::CommitPutResponse* response) override;
  grpc::Status PutProfile(grpc::ServerContext* context,
                          grpc::ServerReader<v1::PutProfileRequest>* reader,
                          v1::PutProfileResponse* response) override;
  grpc::Status GetProfile(grpc::ServerContext* context, const v1::GetProfileRequest* request,
                          grpc::ServerWriter<v1::ProfileFrame>* writer) override;
  grpc::Status ListNamespaces(grpc::ServerContext* context,
                              const v1::ListNamespacesRequest* request,
                              v1::ListNamespacesResponse* response) override;

 private:
  // False if the call was cancelled meanwhile.
  bool Hold(grpc::ServerContext* context);
  bool SendRange(grpc::ServerReaderWriter<v1::FetchFrame, v1::FetchRequest>* stream,
                 const v1::FetchAsk& ask, const std::string& container, uint64_t begin,
                 uint64_t end);
  bool Answer(grpc::ServerReaderWriter<v1::FetchFrame, v1::FetchRequest>* stream,
              const v1::FetchAsk& ask);

  const Faults faults_;
  absl::Notification released_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::string> containers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> profiles_ ABSL_GUARDED_BY(mutex_);  // by profile id
  std::map<uint64_t, std::pair<v1::BeginPutRequest, std::string>> uploads_ ABSL_GUARDED_BY(mutex_);
  v1::BeginPutRequest last_put_ ABSL_GUARDED_BY(mutex_);
  int num_lookups_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_puts_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_put_profiles_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_get_profiles_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::client
