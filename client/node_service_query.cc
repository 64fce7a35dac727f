// Queries of the Node service: what is stored, and what of it a load would try.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "client/grpc_status.h"
#include "client/node_service.h"
#include "client/profile_geometry.h"
#include "codec/status_macros.h"

namespace sluice::client {

struct NodeService::Queried {
  std::shared_ptr<RegisteredPool> pool;  // null: the others say it
  codec::Geometry geometry;
  ProfilePtr builtin;  // null: the profile is named
  codec::Digest profile_id = {};

  absl::StatusOr<ProfilePtr> GetProfile(ProfileStore& profiles, absl::Time deadline,
                                        const std::function<bool()>& cancelled) const {
    if (pool != nullptr) return pool->GetProfile(deadline, cancelled);
    if (builtin != nullptr) return builtin;
    ASSIGN_OR_RETURN(ProfilePtr profile, profiles.Get(profile_id, deadline, cancelled));
    RETURN_IF_ERROR(CheckSameGeometry(profile->geometry(), geometry));
    return profile;
  }
};

absl::StatusOr<NodeService::Queried> NodeService::FindQueried(
    const v1::QueryRequest& request) const {
  Queried queried;
  if (request.pool_id() != 0 && !request.has_geometry() && request.profile_id().empty()) {
    ASSIGN_OR_RETURN(queried.pool, pools_.Find(request.pool_id()));
    queried.profile_id = queried.pool->profile_id();
    return queried;
  }
  ASSIGN_OR_RETURN(queried.geometry, CheckedGeometry(request));
  ASSIGN_OR_RETURN(const std::optional<codec::Digest> profile_id,
                   CheckedProfileId(request.profile_id()));
  if (profile_id) {
    queried.profile_id = *profile_id;
    return queried;
  }
  ASSIGN_OR_RETURN(codec::Profile profile, codec::Profile::Builtin(queried.geometry));
  queried.builtin = std::make_shared<const codec::Profile>(std::move(profile));
  queried.profile_id = queried.builtin->id();
  return queried;
}

grpc::Status NodeService::Query(grpc::ServerContext* server_context,
                                const v1::QueryRequest* request, v1::QueryResponse* response) {
  const auto queried = FindQueried(*request);
  if (!queried.ok()) return ToGrpc(queried.status());
  const auto arguments = CheckedQuery(*request, queried->profile_id, config_.requests);
  if (!arguments.ok()) return ToGrpc(arguments.status());
  if (loader_->link_status().breaker_open) {
    return ToGrpc(absl::UnavailableError(
        absl::StrCat("the breaker towards ", store_->address(), " is open after recent failures")));
  }
  const absl::Time deadline = absl::Now() + arguments->timeout;
  const auto cancelled = [server_context] { return server_context->IsCancelled(); };
  ContextKeys context = arguments->context;
  const auto manifests =
      store_->Lookup(context.namespace_digest, context.chunk_keys, deadline, cancelled);
  if (absl::IsNotFound(manifests.status())) return grpc::Status::OK;  // nothing of that namespace
  if (!manifests.ok()) return ToGrpc(manifests.status());
  const auto gap = std::find_if(manifests->begin(), manifests->end(),
                                [](const ChunkManifest& manifest) { return !manifest.found; });
  const auto stored = static_cast<uint32_t>(gap - manifests->begin());
  response->set_stored_tokens(stored * context.descriptor.chunk_tokens);
  response->set_planned_tokens(response->stored_tokens());
  if (stored == 0) return grpc::Status::OK;

  const auto profile = queried->GetProfile(*profiles_, deadline, cancelled);
  if (absl::IsInvalidArgument(profile.status())) return ToGrpc(profile.status());
  if (!profile.ok()) return grpc::Status::OK;
  context.chunk_keys.resize(stored);
  LoadOptions options = OptionsFor(context, arguments->num_tokens);
  options.capability = adapt::RecomputeCapability::kSuffix;
  options.slo = arguments->slo;
  options.limit = arguments->slo;
  const uint32_t planned =
      loader_->CountPlanned(**profile, options, std::span(*manifests).first(stored),
                            prefill_costs_.Pace(PrefillModel(context.descriptor)));
  response->set_planned_tokens(planned * context.descriptor.chunk_tokens);
  return grpc::Status::OK;
}

}  // namespace sluice::client
