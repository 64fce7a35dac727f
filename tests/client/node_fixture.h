// A whole node in the test's process: the service behind gRPC on a unix socket, with the real
// loader and codec, a fake storage server, and an engine with one pool in shared memory.
#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "client/node_service.h"
#include "sluice/v1/node.grpc.pb.h"
#include "tests/client/fake_store.h"
#include "tests/client/shm_pool.h"

namespace sluice::client {

class NodeFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kChunkTokens = 32;
  static constexpr uint32_t kBlockTokens = 16;
  static constexpr uint32_t kBlocks = 16;
  static constexpr uint32_t kPerChunk = kChunkTokens / kBlockTokens;
  static constexpr uint32_t kSloMs = 20'000;

  NodeFixture()
      : layout_(HeadMajorLayout(SmallGeometry(2, 2, 16), kBlocks, kBlockTokens)),
        shm_(layout_.pool_bytes) {}
  ~NodeFixture() override { Stop(); }

  void Start(FakeStore::Faults faults = {}, NodeService::Config config = {}) {
    fake_ = std::make_unique<FakeStore>(std::move(faults));
    StartNode(fake_->address(), std::move(config));
  }

  void StartNode(const std::string& server, NodeService::Config config = {}) {
    config.node = "test";
    std::shared_ptr<RemoteStore> store = RemoteStore::Create(server);
    ProfileStore::Config profiles;
    profiles.folder.path = profile_folder_;
    service_ = std::make_unique<NodeService>(store, Loader::Create(store, {}),
                                             std::make_shared<ProfileStore>(store, profiles),
                                             std::move(config));
    socket_ = ::testing::TempDir() + "node-" + std::to_string(getpid()) + ".sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
    builder.RegisterService(service_.get());
    builder.SetMaxReceiveMessageSize(64 << 20);
    if (max_threads_ > 0) {
      grpc::ResourceQuota quota("test");
      quota.SetMaxThreads(max_threads_);
      builder.SetResourceQuota(quota);
    }
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    node_ = v1::Node::NewStub(
        grpc::CreateChannel("unix:" + socket_, grpc::InsecureChannelCredentials()));
  }

  void Stop() {
    if (server_ == nullptr) return;
    service_->Stop(absl::InfinitePast());
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    server_.reset();
    service_.reset();
  }

  v1::RegisterPoolRequest PoolRequest() const { return PoolRequest(layout_, shm_); }

  static v1::RegisterPoolRequest PoolRequest(const BlockLayout& layout, const ShmPool& shm) {
    v1::RegisterPoolRequest request;
    request.set_shm_name(shm.name());
    request.set_pool_bytes(layout.pool_bytes);
    request.set_num_blocks(layout.num_blocks);
    request.set_block_tokens(layout.block_tokens);
    ToMessage(layout.geometry, *request.mutable_geometry());
    for (const PlaneLayout& plane : layout.planes) {
      v1::PlaneLayout* message = request.add_layouts();
      message->set_offset_bytes(plane.offset_bytes);
      message->set_block_stride_bytes(plane.block_stride_bytes);
      message->set_token_stride_bytes(plane.token_stride_bytes);
      message->set_head_stride_bytes(plane.head_stride_bytes);
      message->set_token_tile(plane.token_tile);
      message->set_token_tile_stride_bytes(plane.token_tile_stride_bytes);
      message->set_dim_tile(plane.dim_tile);
      message->set_dim_tile_stride_bytes(plane.dim_tile_stride_bytes);
      message->set_dim_stride_bytes(plane.dim_stride_bytes);
    }
    return request;
  }

  static void ToMessage(const codec::Geometry& geometry, v1::Geometry& out) {
    for (const codec::PlaneSpec& plane : geometry.planes) {
      v1::PlaneSpec* message = out.add_planes();
      message->set_kind(static_cast<v1::PlaneKind>(plane.kind));
      message->set_model_layer(plane.model_layer);
      message->set_num_heads(plane.num_heads);
      message->set_head_dim(plane.head_dim);
      message->set_element_type(static_cast<v1::ElementType>(plane.element_type));
    }
  }

  grpc::Status Register(const v1::RegisterPoolRequest& request) {
    grpc::ClientContext context;
    v1::RegisterPoolResponse response;
    const grpc::Status status = node_->RegisterPool(&context, request, &response);
    if (status.ok()) pool_id_ = response.pool_id();
    return status;
  }

  grpc::Status Unregister() {
    grpc::ClientContext context;
    v1::UnregisterPoolRequest request;
    request.set_pool_id(pool_id_);
    v1::UnregisterPoolResponse response;
    return node_->UnregisterPool(&context, request, &response);
  }

  // A request for a context of `num_chunks` full chunks and half a chunk, in blocks `first_block`,
  // ... .
  template <typename Request>
  Request Context(uint32_t num_chunks, uint32_t first_block) const {
    Request request;
    request.set_pool_id(pool_id_);
    request.mutable_identity()->set_model("m");
    request.mutable_identity()->set_chunk_tokens(kChunkTokens);
    for (uint32_t i = 0; i < num_chunks * kChunkTokens + kChunkTokens / 2; ++i) {
      request.add_token_ids(i * 31 % 1000);
    }
    for (uint32_t i = 0; i < num_chunks * kPerChunk; ++i) request.add_block_ids(first_block + i);
    return request;
  }

  v1::LoadRequest LoadContext(uint32_t num_chunks, uint32_t first_block) const {
    auto request = Context<v1::LoadRequest>(num_chunks, first_block);
    request.set_slo_ms(kSloMs);
    request.set_recompute(v1::RECOMPUTE_CAPABILITY_ANY);
    return request;
  }

  // Without a pool.
  v1::QueryRequest QueryOf(uint32_t num_chunks) const {
    const auto load = LoadContext(num_chunks, 0);
    v1::QueryRequest request;
    *request.mutable_identity() = load.identity();
    *request.mutable_token_ids() = load.token_ids();
    ToMessage(layout_.geometry, *request.mutable_geometry());
    request.set_timeout_ms(kSloMs);
    return request;
  }

  v1::QueryResponse Query(const v1::QueryRequest& request) {
    grpc::ClientContext context;
    v1::QueryResponse response;
    status_ = node_->Query(&context, request, &response);
    return response;
  }

  // Tells of prefills of a chunk that took so long.
  grpc::Status ReportPrefills(double ms) {
    v1::ReportPrefillRequest report;
    report.mutable_identity()->set_model("m");
    for (int i = 0; i < 4; ++i) {
      v1::PrefillTiming* timing = report.add_timings();
      timing->set_new_tokens(kChunkTokens);
      timing->set_ms(ms);
    }
    grpc::ClientContext context;
    v1::ReportPrefillResponse response;
    return node_->ReportPrefill(&context, report, &response);
  }

  struct Loaded {
    grpc::Status status;
    v1::LoadStarted started;
    std::vector<v1::ChunkOutcome> chunks;
    v1::LoadSummary summary;
    int outcome_events = 0;
    int events_after_summary = 0;
  };

  Loaded Load(const v1::LoadRequest& request) {
    grpc::ClientContext context;
    const auto reader = node_->Load(&context, request);
    return Finish(*reader);
  }

  static Loaded Finish(grpc::ClientReader<v1::LoadEvent>& reader) {
    Loaded loaded;
    v1::LoadEvent event;
    bool over = false;
    while (reader.Read(&event)) {
      loaded.events_after_summary += over;
      if (event.has_started()) loaded.started = event.started();
      loaded.chunks.insert(loaded.chunks.end(), event.chunks().outcomes().begin(),
                           event.chunks().outcomes().end());
      loaded.outcome_events += event.has_chunks();
      if (event.has_summary()) loaded.summary = event.summary();
      over = over || event.has_summary();
    }
    loaded.status = reader.Finish();
    return loaded;
  }

  std::vector<v1::SaveEvent> Save(const v1::SaveRequest& request) {
    grpc::ClientContext context;
    const auto reader = node_->Save(&context, request);
    std::vector<v1::SaveEvent> events;
    v1::SaveEvent event;
    while (reader->Read(&event)) events.push_back(event);
    status_ = reader->Finish();
    return events;
  }

  v1::StatusResponse NodeStatus() {
    grpc::ClientContext context;
    v1::StatusResponse response;
    EXPECT_TRUE(node_->Status(&context, v1::StatusRequest(), &response).ok());
    return response;
  }

  const BlockLayout layout_;
  ShmPool shm_;
  std::unique_ptr<FakeStore> fake_;
  std::unique_ptr<NodeService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Node::Stub> node_;
  std::string socket_;
  std::string profile_folder_;  // of the daemon; empty for none
  int max_threads_ = 0;         // of the daemon's calls; 0: any number
  uint64_t pool_id_ = 0;
  grpc::Status status_;  // of the last Save or Query
};

}  // namespace sluice::client
