// The Node service: what serving engines of this host ask of the daemon.
//
// Thread-safe; each call but HoldPool runs in a thread of gRPC's. Holds the pools, the running
// loads and the queue of saves; the work itself is done by Loader and Saver.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/load_table.h"
#include "client/loader.h"
#include "client/node_service_hold.h"
#include "client/node_validate.h"
#include "client/pool_registry.h"
#include "client/prefill_costs.h"
#include "client/profile_store.h"
#include "client/record_folder.h"
#include "client/remote_store.h"
#include "client/saver.h"
#include "sluice/v1/node.grpc.pb.h"

namespace sluice::client {

class NodeService final : public v1::Node::WithCallbackMethod_HoldPool<v1::Node::Service> {
 public:
  struct Config {
    std::string node;  // name and version, for Status
    RequestLimits requests;
    size_t max_pools = 64;
    size_t max_loads = 16;
    std::string prefill_file;  // empty: not kept
    RecordFolder::Config records;
    Saver::Config saver;
  };

  NodeService(std::shared_ptr<RemoteStore> store, std::unique_ptr<Loader> loader,
              std::shared_ptr<ProfileStore> profiles, Config config);

  // Running and later loads end with CANCELLED at once; saves go on until `deadline`. True if all
  // saves had ended by then.
  bool Stop(absl::Time deadline);

  grpc::Status RegisterPool(grpc::ServerContext* context, const v1::RegisterPoolRequest* request,
                            v1::RegisterPoolResponse* response) override;
  grpc::Status UnregisterPool(grpc::ServerContext* context,
                              const v1::UnregisterPoolRequest* request,
                              v1::UnregisterPoolResponse* response) override;
  PoolHolds::Reactor* HoldPool(grpc::CallbackServerContext* context,
                               const v1::HoldPoolRequest* request) override;
  grpc::Status Query(grpc::ServerContext* context, const v1::QueryRequest* request,
                     v1::QueryResponse* response) override;
  grpc::Status Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                    grpc::ServerWriter<v1::LoadEvent>* writer) override;
  grpc::Status ReportPrefill(grpc::ServerContext* context, const v1::ReportPrefillRequest* request,
                             v1::ReportPrefillResponse* response) override;
  grpc::Status ReportComputed(grpc::ServerContext* context,
                              const v1::ReportComputedRequest* request,
                              v1::ReportComputedResponse* response) override;
  grpc::Status Save(grpc::ServerContext* context, const v1::SaveRequest* request,
                    grpc::ServerWriter<v1::SaveEvent>* writer) override;
  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      v1::StatusResponse* response) override;

 private:
  struct Counters {
    std::atomic<uint64_t> loaded_chunks = 0;
    std::atomic<uint64_t> recompute_chunks = 0;
    std::atomic<uint64_t> received_bytes = 0;
    std::atomic<uint64_t> late_loads = 0;
  };

  // The pool with its profile, if that can be had now.
  absl::StatusOr<std::shared_ptr<RegisteredPool>> MakePool(grpc::ServerContext* context,
                                                           const v1::RegisterPoolRequest& request);
  // What a query is about: a pool, or planes and a profile.
  struct Queried;
  absl::StatusOr<Queried> FindQueried(const v1::QueryRequest& request) const;
  // What a load of a context of `num_tokens` tokens is told of it.
  LoadOptions OptionsFor(const ContextKeys& context, uint32_t num_tokens) const;
  // Runs the load, or answers for it when there is no room. `send` sends outcomes.
  LoadResult RunLoad(const LoadArguments& arguments, RegisteredPool& pool, LoadControl* control,
                     absl::Time arrival, const OnOutcomes& send);
  // Counts and logs a finished load, and sums it up.
  v1::LoadSummary Finish(const LoadArguments& arguments, const LoadResult& result);
  grpc::Status FollowSave(grpc::ServerContext* context, const std::shared_ptr<SaveTicket>& ticket,
                          const std::weak_ptr<RegisteredPool>& pool,
                          grpc::ServerWriter<v1::SaveEvent>* writer);

  const std::shared_ptr<RemoteStore> store_;
  const std::unique_ptr<Loader> loader_;
  const std::shared_ptr<ProfileStore> profiles_;
  const Config config_;
  const absl::Time start_ = absl::Now();
  Counters counters_;
  PoolRegistry pools_;
  PoolHolds holds_;
  LoadTable loads_;
  PrefillCosts prefill_costs_;
  RecordFolder records_;
  Saver saver_;
};

}  // namespace sluice::client
