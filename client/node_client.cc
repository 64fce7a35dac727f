#include "client/node_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/grpc_status.h"
#include "sluice/v1/node.grpc.pb.h"

namespace sluice::client {
namespace {

constexpr absl::Duration kMaxNodeCall = absl::Hours(1);
constexpr int kMaxNodeMessageBytes = 64 << 20;

void SetUp(grpc::ClientContext& context, absl::Time deadline) {
  context.set_deadline(absl::ToChronoTime(std::min(deadline, absl::Now() + kMaxNodeCall)));
}

void ToProto(const codec::Geometry& geometry, v1::Geometry& out) {
  // The wire's enumerators have the numbers of the codec's.
  for (const codec::PlaneSpec& spec : geometry.planes) {
    v1::PlaneSpec& plane = *out.add_planes();
    plane.set_kind(static_cast<v1::PlaneKind>(spec.kind));
    plane.set_model_layer(spec.model_layer);
    plane.set_num_heads(spec.num_heads);
    plane.set_head_dim(spec.head_dim);
    plane.set_element_type(static_cast<v1::ElementType>(spec.element_type));
    plane.set_rotary_table(static_cast<uint32_t>(spec.rotary_table + 1));
  }
  for (const codec::RotaryTable& table : geometry.rotary_tables) {
    v1::RotaryTable& rotary = *out.add_rotary_tables();
    rotary.set_layout(static_cast<v1::RotaryLayout>(table.layout));
    rotary.set_first_dim(table.first_dim);
    rotary.mutable_inverse_frequencies()->Add(table.inverse_frequencies.begin(),
                                              table.inverse_frequencies.end());
  }
}

void ToProto(const codec::NamespaceDescriptor& descriptor, v1::ModelIdentity& out) {
  out.set_model(descriptor.model);
  out.set_revision(descriptor.revision);
  out.set_adapter(descriptor.adapter);
  out.set_tenant(descriptor.tenant);
  out.set_salt(descriptor.salt);
  out.set_chunk_tokens(descriptor.chunk_tokens);
}

v1::RecomputeCapability ToProto(adapt::RecomputeCapability capability) {
  switch (capability) {
    case adapt::RecomputeCapability::kNone:
      return v1::RECOMPUTE_CAPABILITY_NONE;
    case adapt::RecomputeCapability::kSuffix:
      return v1::RECOMPUTE_CAPABILITY_SUFFIX;
    case adapt::RecomputeCapability::kBidirectional:
      return v1::RECOMPUTE_CAPABILITY_BIDIRECTIONAL;
    case adapt::RecomputeCapability::kAny:
      return v1::RECOMPUTE_CAPABILITY_ANY;
  }
  return v1::RECOMPUTE_CAPABILITY_NONE;
}

const char* BreakerName(v1::BreakerState state) {
  switch (state) {
    case v1::BREAKER_STATE_CLOSED:
      return "closed";
    case v1::BREAKER_STATE_OPEN:
      return "open";
    case v1::BREAKER_STATE_HALF_OPEN:
      return "half open";
    default:
      return "unknown";
  }
}

class GrpcPoolHold final : public PoolHold {
 public:
  GrpcPoolHold(v1::Node::Stub& node, uint64_t pool_id) {
    v1::HoldPoolRequest request;
    request.set_pool_id(pool_id);
    reader_ = node.HoldPool(&context_, request);
  }
  ~GrpcPoolHold() override {
    context_.TryCancel();
    for (v1::HoldPoolResponse response; reader_->Read(&response);) {
    }
    reader_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::HoldPoolResponse>> reader_;
};

class GrpcNodeClient : public NodeClient {
 public:
  explicit GrpcNodeClient(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxNodeMessageBytes);
    arguments.SetMaxSendMessageSize(kMaxNodeMessageBytes);
    stub_ = v1::Node::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  absl::StatusOr<uint64_t> RegisterPool(const EnginePool& pool,
                                        const std::optional<codec::Digest>& profile_id,
                                        absl::Time deadline) override {
    const BlockLayout& layout = pool.layout();
    v1::RegisterPoolRequest request;
    request.set_shm_name(pool.shm_name());
    request.set_pool_bytes(layout.pool_bytes);
    request.set_num_blocks(layout.num_blocks);
    request.set_block_tokens(layout.block_tokens);
    ToProto(layout.geometry, *request.mutable_geometry());
    if (profile_id) request.set_profile_id(std::string(codec::DigestBytes(*profile_id)));
    for (const PlaneLayout& plane : layout.planes) {
      v1::PlaneLayout& out = *request.add_layouts();
      out.set_offset_bytes(plane.offset_bytes);
      out.set_block_stride_bytes(plane.block_stride_bytes);
      out.set_token_stride_bytes(plane.token_stride_bytes);
      out.set_head_stride_bytes(plane.head_stride_bytes);
      out.set_token_tile(plane.token_tile);
      out.set_token_tile_stride_bytes(plane.token_tile_stride_bytes);
      out.set_dim_tile(plane.dim_tile);
      out.set_dim_tile_stride_bytes(plane.dim_tile_stride_bytes);
      out.set_dim_stride_bytes(plane.dim_stride_bytes);
    }
    grpc::ClientContext context;
    SetUp(context, deadline);
    v1::RegisterPoolResponse response;
    const grpc::Status status = stub_->RegisterPool(&context, request, &response);
    if (!status.ok()) return FromGrpc(status, "register pool");
    return response.pool_id();
  }

  std::unique_ptr<PoolHold> HoldPool(uint64_t pool_id) override {
    return std::make_unique<GrpcPoolHold>(*stub_, pool_id);
  }

  absl::Status UnregisterPool(uint64_t pool_id, absl::Time deadline) override {
    v1::UnregisterPoolRequest request;
    request.set_pool_id(pool_id);
    grpc::ClientContext context;
    SetUp(context, deadline);
    v1::UnregisterPoolResponse response;
    return FromGrpc(stub_->UnregisterPool(&context, request, &response), "unregister pool");
  }

  absl::StatusOr<LoadResult> Load(const NodeLoad& load, const OnOutcomes& on_outcomes,
                                  absl::Time deadline) override {
    v1::LoadRequest request;
    ToProto(load.identity, *request.mutable_identity());
    request.set_pool_id(load.pool_id);
    request.mutable_token_ids()->Add(load.token_ids.begin(), load.token_ids.end());
    request.mutable_block_ids()->Add(load.block_ids.begin(), load.block_ids.end());
    request.set_slo_ms(load.slo_ms);
    request.set_recompute(ToProto(load.capability));
    if (load.exact_level) request.set_exact_level(*load.exact_level);
    request.set_request_id(load.request_id);
    grpc::ClientContext context;
    SetUp(context, deadline);
    auto reader = stub_->Load(&context, request);
    LoadResult result;
    bool finished = false;
    for (v1::LoadEvent event; reader->Read(&event);) {
      if (event.has_chunks()) {
        const size_t told = result.outcomes.size();
        for (const v1::ChunkOutcome& outcome : event.chunks().outcomes()) {
          result.outcomes.push_back(FromMessage(outcome));
        }
        if (on_outcomes) on_outcomes(std::span(result.outcomes).subspan(told));
      } else if (event.has_summary()) {
        finished = true;
        result.bytes = event.summary().bytes();
        result.ms = event.summary().ms();
      }
    }
    if (const grpc::Status status = reader->Finish(); !status.ok()) return FromGrpc(status, "load");
    if (!finished) return absl::InternalError("load: ended without a summary");
    std::ranges::sort(result.outcomes, {}, &ChunkOutcome::chunk_index);
    return result;
  }

  absl::StatusOr<NodeSaved> Save(const NodeSave& save, absl::Time deadline) override {
    v1::SaveRequest request;
    ToProto(save.identity, *request.mutable_identity());
    request.set_pool_id(save.pool_id);
    request.mutable_token_ids()->Add(save.token_ids.begin(), save.token_ids.end());
    request.mutable_block_ids()->Add(save.block_ids.begin(), save.block_ids.end());
    request.set_lossless(save.lossless);
    request.set_request_id(save.request_id);
    grpc::ClientContext context;
    SetUp(context, deadline);
    auto reader = stub_->Save(&context, request);
    v1::SaveEvent last;
    for (v1::SaveEvent event; reader->Read(&event);) last = std::move(event);
    if (const grpc::Status status = reader->Finish(); !status.ok()) return FromGrpc(status, "save");
    if (last.state() != v1::SAVE_STATE_STORED) {
      return absl::AbortedError(absl::StrCat("save: ", last.message()));
    }
    return NodeSaved{last.stored_chunks(), last.existing_chunks(), last.bytes(),
                     last.unusual_rate_chunks()};
  }

  absl::StatusOr<NodeStatus> Status(absl::Time deadline) override {
    grpc::ClientContext context;
    SetUp(context, deadline);
    v1::StatusResponse response;
    const grpc::Status status = stub_->Status(&context, {}, &response);
    if (!status.ok()) return FromGrpc(status, "status");
    return NodeStatus{.node = response.node(),
                      .server = response.server(),
                      .breaker = BreakerName(response.breaker()),
                      .link_bytes_per_s = response.link_bytes_per_s(),
                      .pools = response.pools(),
                      .loads = response.loads(),
                      .saves = response.saves(),
                      .loaded_chunks = response.loaded_chunks(),
                      .recompute_chunks = response.recompute_chunks(),
                      .received_bytes = response.received_bytes(),
                      .late_loads = response.late_loads(),
                      .dropped_records = response.dropped_records(),
                      .uptime_ms = response.uptime_ms(),
                      .unusual_rate_chunks = response.unusual_rate_chunks()};
  }

 private:
  std::unique_ptr<v1::Node::Stub> stub_;
};

}  // namespace

std::unique_ptr<NodeClient> NodeClient::Create(const std::string& socket) {
  return std::make_unique<GrpcNodeClient>(socket.starts_with("unix:") ? socket : "unix:" + socket);
}

}  // namespace sluice::client
