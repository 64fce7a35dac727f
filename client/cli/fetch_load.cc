#include "client/cli/fetch_load.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/failure.h"
#include "client/cli/node_commands.h"
#include "client/cli/progress.h"
#include "client/engine_pool.h"
#include "client/node_client.h"
#include "codec/decoder.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kRequestId[] = "sluice-fetch";
// How long after its time limit the daemon may take to send the last of its answer.
constexpr absl::Duration kAnswerGrace = absl::Seconds(1);

using client::ChunkOutcome;
using client::ContextPlanes;

class MemorySink : public client::PlaneSink {
 public:
  MemorySink(const FetchPlan& plan, ContextPlanes& planes) : plan_(plan), planes_(planes) {}

  absl::Status Write(uint32_t chunk_index, size_t group,
                     const codec::GroupDecoder& decoded) override {
    const uint32_t chunk_tokens = plan_.descriptor.chunk_tokens;
    const codec::GroupSpec& spec = plan_.profile->groups()[group];
    std::vector<std::byte*> begins(spec.num_planes);
    std::vector<codec::PlaneRuns> runs;
    for (uint32_t i = 0; i < spec.num_planes; ++i) {
      ASSIGN_OR_RETURN(
          begins[i], planes_.Find(spec.first_plane + i, chunk_index * chunk_tokens, chunk_tokens));
      const codec::PlaneSpec& plane = plan_.profile->geometry().planes[spec.first_plane + i];
      runs.push_back(codec::DenseRuns(plane, planes_.num_tokens(), begins[i]));
    }
    return decoded.Write(runs);
  }

 private:
  const FetchPlan& plan_;
  ContextPlanes& planes_;
};

absl::StatusOr<ContextPlanes> MakePlanes(const FetchPlan& plan) {
  return ContextPlanes::Create(plan.profile->geometry(),
                               plan.num_chunks() * plan.descriptor.chunk_tokens);
}

// Copies a loaded chunk from the daemon's blocks.
absl::Status CopyChunk(const FetchPlan& plan, client::EnginePool& pool, uint32_t chunk,
                       ContextPlanes& planes) {
  const uint32_t chunk_tokens = plan.descriptor.chunk_tokens;
  std::vector<uint32_t> blocks(chunk_tokens / pool.layout().block_tokens);
  std::iota(blocks.begin(), blocks.end(), chunk * static_cast<uint32_t>(blocks.size()));
  std::vector<std::byte> values;
  for (size_t i = 0; i < planes.geometry().planes.size(); ++i) {
    values.resize(planes.geometry().planes[i].bytes_per_token() * chunk_tokens);
    RETURN_IF_ERROR(pool.blocks().Gather(i, blocks, values));
    RETURN_IF_ERROR(planes.Write(i, chunk * chunk_tokens, chunk_tokens, values));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Fetched> LoadFromServer(const FetchOptions& options, const FetchPlan& plan) {
  ASSIGN_OR_RETURN(ContextPlanes planes, MakePlanes(plan));
  RETURN_IF_ERROR(codec::PrepareDecode(*plan.profile));
  client::LoadResult result = LoadFromServer(options, plan, planes);
  return Fetched{std::move(planes), std::move(result)};
}

client::LoadResult LoadFromServer(const FetchOptions& options, const FetchPlan& plan,
                                  ContextPlanes& planes) {
  client::LoadOptions load;
  load.namespace_digest = codec::NamespaceDigest(plan.descriptor);
  load.chunk_keys =
      codec::ChunkKeys(load.namespace_digest, plan.token_ids, plan.descriptor.chunk_tokens);
  load.chunk_tokens = plan.descriptor.chunk_tokens;
  load.slo = absl::Milliseconds(options.slo_ms);
  load.capability = options.capability;
  load.exact_level = options.level;
  load.load_id = kRequestId;
  load.record = true;  // it also tells what was of no use
  auto loader = client::Loader::Create(client::RemoteStore::Create(options.server.address), {});
  MemorySink sink(plan, planes);
  Progress progress("loading chunks", plan.num_chunks());
  uint64_t done = 0;
  return loader->Load(
      plan.profile, load, sink,
      [&](std::span<const ChunkOutcome> outcomes) { progress.Update(done += outcomes.size()); },
      nullptr);
}

absl::StatusOr<Fetched> LoadThroughNode(const FetchOptions& options, const FetchPlan& plan) {
  ASSIGN_OR_RETURN(ContextPlanes planes, MakePlanes(plan));
  const uint32_t chunk_tokens = plan.descriptor.chunk_tokens;
  ASSIGN_OR_RETURN(NodeSession session,
                   NodeSession::Open(options.node, plan.profile->geometry(),
                                     options.profile.empty() ? nullptr : plan.profile.get(),
                                     planes.num_tokens(), chunk_tokens, options.server.timeout_s));
  client::NodeLoad load;
  load.identity = plan.descriptor;
  load.pool_id = session.pool_id();
  load.token_ids = plan.token_ids;
  load.token_ids.resize(planes.num_tokens());
  load.block_ids = session.block_ids();
  load.slo_ms = options.slo_ms;
  load.capability = options.capability;
  load.exact_level = options.level;
  load.request_id = kRequestId;
  const absl::Time deadline = absl::Now() + absl::Milliseconds(options.slo_ms) + kAnswerGrace;
  Progress progress("loading chunks", plan.num_chunks());
  uint64_t done = 0;
  auto result = session.client().Load(
      load,
      [&](std::span<const ChunkOutcome> outcomes) { progress.Update(done += outcomes.size()); },
      deadline);
  if (!result.ok()) return ExplainNoNode(result.status(), options.node);
  for (const ChunkOutcome& outcome : result->outcomes) {
    if (outcome.reason != client::RecomputeReason::kNone) continue;
    if (outcome.chunk_index >= plan.num_chunks()) {
      return absl::InternalError("the daemon named a chunk that was not asked for");
    }
    RETURN_IF_ERROR(CopyChunk(plan, session.pool(), outcome.chunk_index, planes));
  }
  return Fetched{std::move(planes), *std::move(result)};
}

}  // namespace sluice::cli
