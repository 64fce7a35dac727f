#include "client/node_service.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/block_sink.h"
#include "client/grpc_status.h"
#include "client/log_text.h"
#include "client/node_service_limit.h"
#include "codec/status_macros.h"
#include "spdlog/spdlog.h"

#define RETURN_GRPC_IF_ERROR(status) \
  if (!(status).ok()) return ToGrpc(status)

namespace sluice::client {
namespace {

// How often waits look at what might end them.
constexpr absl::Duration kPoll = absl::Milliseconds(10);
// How long UnregisterPool waits for loads and saves to let go.
constexpr absl::Duration kUnregisterTimeout = absl::Seconds(30);

// How long after its SLO a load may still wait for its engine to read outcomes.
constexpr absl::Duration kReadGrace = absl::Seconds(1);

// Of one message, so that it stays far below the 4 MiB that gRPC takes by default.
constexpr size_t kMaxOutcomesPerEvent = 1024;
constexpr size_t kMaxOutcomeMessageBytes = 512;

// The start of a message that may be long; whole characters of UTF-8, as the wire wants them.
std::string_view Shortened(std::string_view message) {
  if (message.size() <= kMaxOutcomeMessageBytes) return message;
  size_t end = kMaxOutcomeMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xc0) == 0x80) --end;
  return message.substr(0, end);
}

void WriteOutcomes(std::span<const ChunkOutcome> outcomes,
                   grpc::ServerWriter<v1::LoadEvent>& writer) {
  while (!outcomes.empty()) {
    const size_t count = std::min(outcomes.size(), kMaxOutcomesPerEvent);
    v1::LoadEvent event;
    for (const ChunkOutcome& outcome : outcomes.first(count)) {
      v1::ChunkOutcome& message = *event.mutable_chunks()->add_outcomes();
      message = ToMessage(outcome);
      message.set_message(std::string(Shortened(outcome.message)));
    }
    writer.Write(event);
    outcomes = outcomes.subspan(count);
  }
}

v1::SaveEvent ToEvent(const SaveProgress& progress) {
  v1::SaveEvent event;
  switch (progress.state) {
    case SaveState::kCopied:
      event.set_state(v1::SAVE_STATE_COPIED);
      break;
    case SaveState::kStored:
      event.set_state(v1::SAVE_STATE_STORED);
      break;
    case SaveState::kFailed:
      event.set_state(v1::SAVE_STATE_FAILED);
      break;
  }
  event.set_stored_chunks(progress.stored_chunks);
  event.set_existing_chunks(progress.existing_chunks);
  event.set_bytes(progress.bytes);
  event.set_message(progress.message);
  event.set_unusual_rate_chunks(progress.unusual_rate_chunks);
  return event;
}

// One answer for every chunk that was to be loaded, without loading.
LoadResult RefuseAll(const LoadArguments& arguments, RecomputeReason reason,
                     const std::string& message, const OnOutcomes& send) {
  LoadResult result;
  const auto num_chunks = static_cast<uint32_t>(arguments.context.chunk_keys.size());
  for (uint32_t i = arguments.skip_chunks; i < num_chunks; ++i) {
    result.outcomes.push_back({.chunk_index = i, .reason = reason, .message = message});
  }
  send(result.outcomes);
  return result;
}

// Why nothing can be loaded.
RecomputeReason ReasonWithoutProfile(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      return RecomputeReason::kLate;
    case absl::StatusCode::kCancelled:
      return RecomputeReason::kCancelled;
    case absl::StatusCode::kUnavailable:
      return RecomputeReason::kServerUnavailable;
    case absl::StatusCode::kNotFound:
      return RecomputeReason::kNotStored;
    case absl::StatusCode::kDataLoss:
      return RecomputeReason::kDamaged;
    case absl::StatusCode::kResourceExhausted:
      return RecomputeReason::kNodeBusy;
    default:  // it is there, but of no use to this program or pool
      return RecomputeReason::kUnsupported;
  }
}

// May a profile that cannot be had now be there the next time?
bool MayComeLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) || absl::IsDataLoss(status);
}

}  // namespace

NodeService::NodeService(std::shared_ptr<RemoteStore> store, std::unique_ptr<Loader> loader,
                         std::shared_ptr<ProfileStore> profiles, Config config)
    : store_(std::move(store)),
      loader_(std::move(loader)),
      profiles_(std::move(profiles)),
      config_(std::move(config)),
      pools_(config_.max_pools),
      holds_([this](uint64_t pool_id) {
        // Nobody waits for the loads and saves that are ending.
        const absl::Status status = pools_.Remove(pool_id, absl::InfinitePast());
        if (!absl::IsNotFound(status)) spdlog::info("event=engine_gone pool_id={}", pool_id);
      }),
      loads_(config_.max_loads),
      prefill_costs_(config_.prefill_file),
      records_(config_.records),
      saver_(store_, config_.saver) {}

bool NodeService::Stop(absl::Time deadline) {
  holds_.Stop();
  loads_.Stop();
  prefill_costs_.Save().IgnoreError();
  return saver_.Drain(deadline);
}

absl::StatusOr<std::shared_ptr<RegisteredPool>> NodeService::MakePool(
    grpc::ServerContext* context, const v1::RegisterPoolRequest& request) {
  ASSIGN_OR_RETURN(BlockLayout layout, CheckedLayout(request));
  ASSIGN_OR_RETURN(const std::optional<codec::Digest> profile_id,
                   CheckedProfileId(request.profile_id()));
  ASSIGN_OR_RETURN(std::unique_ptr<BlockPool> blocks,
                   BlockPool::Map(request.shm_name(), std::move(layout)));
  if (!profile_id) {
    ASSIGN_OR_RETURN(codec::Profile profile, codec::Profile::Builtin(blocks->layout().geometry));
    return std::make_shared<RegisteredPool>(
        std::move(blocks), std::make_shared<const codec::Profile>(std::move(profile)));
  }
  auto pool = std::make_shared<RegisteredPool>(std::move(blocks), *profile_id, profiles_);
  const absl::Time deadline =
      std::min(absl::FromChrono(context->deadline()), absl::Now() + kMaxCallTime);
  const auto profile = pool->GetProfile(deadline, [context] { return context->IsCancelled(); });
  // An engine may start while the storage server is away or has lost the profile; its loads ask
  // again.
  if (MayComeLater(profile.status())) {
    spdlog::warn("event=profile_missing id={} error={}", codec::DigestHex(*profile_id),
                 Quoted(std::string(profile.status().message())));
    return pool;
  }
  RETURN_IF_ERROR(profile.status());
  return pool;
}

grpc::Status NodeService::RegisterPool(grpc::ServerContext* context,
                                       const v1::RegisterPoolRequest* request,
                                       v1::RegisterPoolResponse* response) {
  absl::StatusOr<std::shared_ptr<RegisteredPool>> pool = MakePool(context, *request);
  RETURN_GRPC_IF_ERROR(pool.status());
  const std::string profile_id = codec::DigestHex((*pool)->profile_id());
  const absl::StatusOr<uint64_t> pool_id = pools_.Add(*std::move(pool));
  RETURN_GRPC_IF_ERROR(pool_id.status());
  spdlog::info("event=pool_registered pool_id={} shm={} bytes={} blocks={} planes={} profile={}",
               *pool_id, Quoted(request->shm_name()), request->pool_bytes(), request->num_blocks(),
               request->layouts_size(), profile_id);
  response->set_pool_id(*pool_id);
  return grpc::Status::OK;
}

grpc::Status NodeService::UnregisterPool(grpc::ServerContext* context,
                                         const v1::UnregisterPoolRequest* request,
                                         v1::UnregisterPoolResponse* /*response*/) {
  const absl::Time deadline =
      std::min(absl::FromChrono(context->deadline()), absl::Now() + kUnregisterTimeout);
  const absl::Status status = pools_.Remove(request->pool_id(), deadline);
  holds_.End(request->pool_id());
  spdlog::info("event=pool_unregistered pool_id={} status={}", request->pool_id(),
               Quoted(status.ToString()));
  return ToGrpc(status);
}

PoolHolds::Reactor* NodeService::HoldPool(grpc::CallbackServerContext* /*context*/,
                                          const v1::HoldPoolRequest* request) {
  const uint64_t pool_id = request->pool_id();
  return holds_.Hold(pool_id, [this, pool_id] { return pools_.Find(pool_id).status(); });
}

LoadOptions NodeService::OptionsFor(const ContextKeys& context, uint32_t num_tokens) const {
  LoadOptions options;
  options.namespace_digest = context.namespace_digest;
  options.chunk_keys = context.chunk_keys;
  options.chunk_tokens = context.descriptor.chunk_tokens;
  const auto num_chunks = static_cast<uint32_t>(context.chunk_keys.size());
  PrefillCosts::Forecast forecast =
      prefill_costs_.Predict(PrefillModel(context.descriptor), num_chunks, options.chunk_tokens,
                             num_tokens - num_chunks * options.chunk_tokens);
  options.compute_us = std::move(forecast.chunk_us);
  options.tail_us = forecast.tail_us;
  return options;
}

LoadResult NodeService::RunLoad(const LoadArguments& arguments, RegisteredPool& pool,
                                LoadControl* control, absl::Time arrival, const OnOutcomes& send) {
  if (control == nullptr) {
    return RefuseAll(arguments, RecomputeReason::kNodeBusy,
                     absl::StrCat("limits.loads: ", config_.max_loads, " loads are running"), send);
  }
  const ContextKeys& context = arguments.context;
  const size_t blocks_per_chunk =
      context.descriptor.chunk_tokens / pool.blocks().layout().block_tokens;
  // A profile that has to be fetched first takes its time from the SLO, and goes on coming after
  // it.
  const auto profile =
      pool.GetProfile(arrival + arguments.slo, [control] { return control->cancelled(); });
  if (!profile.ok()) {
    return RefuseAll(arguments, ReasonWithoutProfile(profile.status()),
                     std::string(profile.status().message()), send);
  }
  BlockSink sink(pool, **profile, arguments.block_ids, arguments.skip_blocks, blocks_per_chunk);
  LoadOptions options = OptionsFor(context, arguments.num_tokens);
  options.skip_chunks = arguments.skip_chunks;
  // The SLO runs from the arrival of the request; hashing a long context takes its share.
  options.slo = std::max(arguments.slo - (absl::Now() - arrival), absl::ZeroDuration());
  options.limit = std::max(arguments.limit - (absl::Now() - arrival), absl::ZeroDuration());
  options.weight = arguments.weight;
  options.capability = arguments.capability;
  options.max_level = arguments.max_level;
  options.exact_level = arguments.exact_level;
  options.load_id = arguments.request_id;
  options.record = records_.enabled();
  LoadResult result = loader_->Load(*profile, options, sink, send, control);
  if (options.record) records_.Keep(std::move(result.record));
  return result;
}

v1::LoadSummary NodeService::Finish(const LoadArguments& arguments, const LoadResult& result) {
  v1::LoadSummary summary;
  uint32_t prefix_chunks = arguments.skip_chunks;
  double expected_ms = 0, transfer_ms = 0;
  for (const ChunkOutcome& outcome : result.outcomes) {
    spdlog::debug(
        "event=chunk request={} chunk={} reason={} level={} bytes={} expected_ms={:.1f} "
        "transfer_ms={:.1f}",
        Quoted(arguments.request_id), outcome.chunk_index, RecomputeReasonName(outcome.reason),
        int{outcome.level}, outcome.bytes, outcome.expected_ms, outcome.transfer_ms);
    expected_ms += outcome.expected_ms;
    transfer_ms += outcome.transfer_ms;
    if (outcome.reason != RecomputeReason::kNone) continue;
    summary.set_loaded_chunks(summary.loaded_chunks() + 1);
    if (outcome.chunk_index == prefix_chunks) ++prefix_chunks;
  }
  summary.set_recompute_chunks(static_cast<uint32_t>(result.outcomes.size()) -
                               summary.loaded_chunks());
  summary.set_loaded_prefix_tokens(prefix_chunks * arguments.context.descriptor.chunk_tokens);
  summary.set_bytes(result.bytes);
  summary.set_ms(result.ms);
  summary.set_num_levels(result.num_levels);
  counters_.loaded_chunks += summary.loaded_chunks();
  counters_.recompute_chunks += summary.recompute_chunks();
  counters_.received_bytes += summary.bytes();
  const double slo_ms = absl::ToDoubleMilliseconds(arguments.slo);
  if (slo_ms > 0 && result.ms > slo_ms) ++counters_.late_loads;
  spdlog::info(
      "event=load request={} loaded_chunks={} recompute_chunks={} bytes={} ms={:.1f} slo_ms={} "
      "expected_ms={:.1f} transfer_ms={:.1f}",
      Quoted(arguments.request_id), summary.loaded_chunks(), summary.recompute_chunks(),
      summary.bytes(), summary.ms(), slo_ms, expected_ms, transfer_ms);
  return summary;
}

grpc::Status NodeService::Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                               grpc::ServerWriter<v1::LoadEvent>* writer) {
  const absl::Time arrival = absl::Now();
  const auto pool = pools_.Find(request->pool_id());
  RETURN_GRPC_IF_ERROR(pool.status());
  const auto arguments =
      CheckedLoad(*request, (*pool)->blocks().layout(), (*pool)->profile_id(), config_.requests);
  RETURN_GRPC_IF_ERROR(arguments.status());

  const CallLimit limit(context, arrival + arguments->limit + kReadGrace);
  RegisteredPool& used_pool = **pool;
  const auto abandoned = [context, &used_pool] {
    return context->IsCancelled() || used_pool.closing();
  };
  const auto compute = [writer](uint32_t chunk_index) {
    v1::LoadEvent event;
    event.mutable_compute()->set_chunk_index(chunk_index);
    writer->Write(event);
  };
  const auto pace = [this, model = PrefillModel(arguments->context.descriptor)] {
    return prefill_costs_.Pace(model);
  };
  const std::unique_ptr<LoadTable::Entry> entry =
      loads_.Enter(arguments->context.descriptor.chunk_tokens, {abandoned, compute, pace});
  v1::LoadEvent started;
  started.mutable_started()->set_load_id(entry == nullptr ? 0 : entry->id());
  started.mutable_started()->set_num_chunks(
      static_cast<uint32_t>(arguments->context.chunk_keys.size()) - arguments->skip_chunks);
  writer->Write(started);
  // A failed write means that the engine is gone, which the load notices by itself.
  const auto send = [writer](std::span<const ChunkOutcome> outcomes) {
    WriteOutcomes(outcomes, *writer);
  };
  LoadResult result = RunLoad(*arguments, used_pool, entry.get(), arrival, send);
  result.ms = absl::ToDoubleMilliseconds(absl::Now() - arrival);
  v1::LoadEvent last;
  *last.mutable_summary() = Finish(*arguments, result);
  writer->Write(last);
  return grpc::Status::OK;
}

grpc::Status NodeService::ReportPrefill(grpc::ServerContext* /*context*/,
                                        const v1::ReportPrefillRequest* request,
                                        v1::ReportPrefillResponse* /*response*/) {
  const auto arguments = CheckedPrefill(*request);
  RETURN_GRPC_IF_ERROR(arguments.status());
  prefill_costs_.Report(arguments->model, arguments->timings, absl::Now());
  return grpc::Status::OK;
}

grpc::Status NodeService::ReportComputed(grpc::ServerContext* /*context*/,
                                         const v1::ReportComputedRequest* request,
                                         v1::ReportComputedResponse* response) {
  response->set_running(loads_.ReportComputed(request->load_id(), request->computed_tokens()));
  return grpc::Status::OK;
}

grpc::Status NodeService::Save(grpc::ServerContext* context, const v1::SaveRequest* request,
                               grpc::ServerWriter<v1::SaveEvent>* writer) {
  auto pool = pools_.Find(request->pool_id());
  RETURN_GRPC_IF_ERROR(pool.status());
  auto arguments =
      CheckedSave(*request, (*pool)->blocks().layout(), (*pool)->profile_id(), config_.requests);
  RETURN_GRPC_IF_ERROR(arguments.status());

  const std::weak_ptr<RegisteredPool> weak_pool = *pool;
  SaveJob job;
  job.pool = *std::move(pool);
  job.descriptor = std::move(arguments->context.descriptor);
  job.chunk_keys = std::move(arguments->context.chunk_keys);
  job.block_ids = std::move(arguments->block_ids);
  job.lossless = arguments->lossless;
  job.request_id = std::move(arguments->request_id);
  auto ticket = saver_.Enqueue(std::move(job));
  if (!ticket.ok()) {
    writer->Write(ToEvent(SaveProgress{.message = std::string(ticket.status().message())}));
    return grpc::Status::OK;
  }
  v1::SaveEvent accepted;
  accepted.set_state(v1::SAVE_STATE_ACCEPTED);
  writer->Write(accepted);
  return FollowSave(context, *ticket, weak_pool, writer);
}

grpc::Status NodeService::FollowSave(grpc::ServerContext* context,
                                     const std::shared_ptr<SaveTicket>& ticket,
                                     const std::weak_ptr<RegisteredPool>& pool,
                                     grpc::ServerWriter<v1::SaveEvent>* writer) {
  bool cancelled = false;
  while (true) {
    const std::optional<SaveProgress> progress = ticket->Next(kPoll);
    if (progress) {
      writer->Write(ToEvent(*progress));
      if (progress->state != SaveState::kCopied) return grpc::Status::OK;
      continue;
    }
    const auto used_pool = pool.lock();
    if (!cancelled && (context->IsCancelled() || used_pool == nullptr || used_pool->closing())) {
      cancelled = true;
      saver_.Cancel(ticket);
    }
  }
}

grpc::Status NodeService::Status(grpc::ServerContext* /*context*/,
                                 const v1::StatusRequest* /*request*/,
                                 v1::StatusResponse* response) {
  const Loader::LinkStatus link = loader_->link_status();
  response->set_node(config_.node);
  response->set_server(store_->address());
  response->set_breaker(link.breaker_open ? v1::BREAKER_STATE_OPEN : v1::BREAKER_STATE_CLOSED);
  response->set_link_bytes_per_s(link.bytes_per_s);
  response->set_link_forecast_error(link.forecast_error);
  response->set_pools(static_cast<uint32_t>(pools_.size()));
  response->set_loads(static_cast<uint32_t>(loads_.size()));
  response->set_saves(static_cast<uint32_t>(saver_.size()));
  response->set_loaded_chunks(counters_.loaded_chunks);
  response->set_recompute_chunks(counters_.recompute_chunks);
  response->set_received_bytes(counters_.received_bytes);
  response->set_late_loads(counters_.late_loads);
  response->set_dropped_records(records_.dropped());
  response->set_unusual_rate_chunks(saver_.unusual_rate_chunks());
  response->set_uptime_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(absl::Now() - start_)));
  return grpc::Status::OK;
}

}  // namespace sluice::client
