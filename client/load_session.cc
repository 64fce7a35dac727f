#include "client/load_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace sluice::client {
namespace {

double Seconds(adapt::TimeUs us) { return static_cast<double>(us) * 1e-6; }

}  // namespace

LoadSession::LoadSession(RemoteStore& store, SharedLink& link, TransferShare& share,
                         DecodePool& pool, const Loader::Config& config,
                         std::shared_ptr<const codec::Profile> profile, const LoadOptions& options,
                         PlaneSink& sink, const OnOutcomes& on_outcomes, LoadControl* control)
    : store_(store),
      link_(link),
      share_(share),
      pool_(pool),
      config_(config),
      profile_(std::move(profile)),
      options_(options),
      on_outcomes_(on_outcomes),
      control_(control),
      terms_(MakeTerms(config, *profile_, options, pool.num_threads(), NowUs())),
      deadline_(absl::Now() + absl::Microseconds(terms_.limit_us)),
      chunks_(options.chunk_keys.size() -
              std::min<size_t>(options.skip_chunks, options.chunk_keys.size())),
      events_(FrameQueueBytes(config.memory_limit_bytes)),
      decoder_(pool, profile_, sink, events_, chunks_.size(), terms_.start_us + terms_.limit_us),
      fetch_(store, events_, options.namespace_digest, options.load_id, deadline_),
      uncovered_(chunks_.size()) {
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    chunks_[i].outcome.chunk_index = options_.skip_chunks + i;
  }
}

LoadSession::~LoadSession() {
  for (auto& [id, ask] : asks_) {
    if (ask.live) LeaveTransfer(id, ask);
  }
  member_ = nullptr;
  events_.Close();
  fetch_.Close();
  decoder_.Stop();
}

void LoadSession::StartRecord() {
  if (!options_.record || chunks_.size() > kMaxRecordedChunks) return;
  record_ = std::make_shared<LoadRecord>();
  record_->load_id = options_.load_id;
  record_->server = store_.address();
  record_->namespace_digest = options_.namespace_digest;
  record_->start = absl::Now();
  record_->chunk_tokens = options_.chunk_tokens;
  record_->first_chunk = options_.skip_chunks;
  record_->slo_us = terms_.slo_us;
}

void LoadSession::EndRecord() {
  if (record_ == nullptr) return;
  const std::unique_ptr<EventLog> log = member_ == nullptr ? nullptr : member_->TakeLog();
  if (log != nullptr) {
    record_->events = log->TakeEvents();
    record_->omitted_events = log->omitted_events();
  }
  record_->outcomes = result_.outcomes;
  record_->bytes = result_.bytes;
  record_->ms = result_.ms;
  result_.record = std::move(record_);
}

LoadResult LoadSession::Run() {
  StartRecord();
  if (terms_.slo_us == 0) {
    FinishAll(RecomputeReason::kLate, "the SLO leaves no time to load");
  } else if (!chunks_.empty() && !link_.Allow()) {
    FinishAll(RecomputeReason::kBreakerOpen, "the server failed just now and is left alone");
  } else if (!chunks_.empty()) {
    if (MayAsk() && Lookup()) {
      JoinLink();
      RunPlan();
    }
    JudgeServer();
  }
  TellOutcomes();
  for (Chunk& chunk : chunks_) {
    result_.outcomes.push_back(std::move(chunk.outcome));
  }
  result_.ms = Seconds(NowUs() - terms_.start_us) * 1e3;
  result_.num_levels = static_cast<uint32_t>(profile_->num_levels());
  EndRecord();
  return std::move(result_);
}

bool LoadSession::MayAsk() {
  const adapt::LinkView link = link_.View();
  if (WorthAsking(options_, ComputeScale(), link)) return true;
  FinishAll(RecomputeReason::kComputeFaster,
            absl::StrCat("computing takes ", ComputeAllUs(options_, ComputeScale()) / 1000,
                         " ms, a round trip to the server ", link.rtt_us / 1000, " ms"));
  return false;
}

// False when the load is over already.
bool LoadSession::Lookup() {
  const absl::Time until = absl::Now() + kLookupShare * absl::Microseconds(terms_.slo_us) -
                           absl::Microseconds(NowUs() - terms_.start_us);
  const auto keys = std::span(options_.chunk_keys).subspan(options_.skip_chunks);
  absl::StatusOr<std::vector<ChunkManifest>> manifests =
      store_.Lookup(options_.namespace_digest, keys, until,
                    [this] { return control_ != nullptr && control_->cancelled(); });
  if (absl::IsCancelled(manifests.status()) && control_ != nullptr && control_->cancelled()) {
    FinishAll(RecomputeReason::kCancelled, "cancelled during the lookup");
    return false;
  }
  if (manifests.ok() && manifests->size() != keys.size()) {
    manifests = absl::DataLossError(
        absl::StrCat("lookup: ", manifests->size(), " answers for ", keys.size(), " keys"));
  }
  if (manifests.ok()) {
    server_ = ServerState::kAnswered;
    for (uint32_t i = 0; i < chunks_.size(); ++i) {
      Chunk& chunk = chunks_[i];
      chunk.manifest = std::move((*manifests)[i]);
      chunk.plan = PlanChunk(*profile_, options_, options_.skip_chunks + i, chunk.manifest);
      if (chunk.plan.steps.empty()) Cover(chunk);
    }
    return true;
  }
  const std::string message(manifests.status().message());
  const absl::StatusCode code = manifests.status().code();
  const Failure failure = FailureOf(code, message);
  const bool short_wait = absl::Microseconds(NowUs() - terms_.start_us) < kVerdictAfter;
  if (failure.reason != RecomputeReason::kServerUnavailable) {
    server_ = ServerState::kAnswered;
    FinishAll(failure.reason, message);
  } else if (code == absl::StatusCode::kDeadlineExceeded && short_wait) {
    FinishAll(RecomputeReason::kLate, message);
  } else {
    server_ = ServerState::kFailed;
    FinishAll(failure.reason, message);
  }
  return false;
}

void LoadSession::JoinLink() {
  adapt::LoadSpec spec = MakeSpec(terms_, config_, options_, ComputeScale());
  for (Chunk& chunk : chunks_) {
    AddChunk(terms_, options_, pool_, chunk.outcome.chunk_index, chunk.plan, spec);
  }
  std::unique_ptr<EventLog> log;
  if (record_ != nullptr) {
    record_->spec = spec;
    log = std::make_unique<EventLog>();
  }
  member_ = link_.Join(
      std::move(spec), [this] { events_.Wake(); }, std::move(log));
}

double LoadSession::ComputeScale() const {
  return control_ == nullptr ? 1 : control_->compute_pace().scale;
}

void LoadSession::RunPlan() {
  const bool anything = std::any_of(chunks_.begin(), chunks_.end(),
                                    [](const Chunk& chunk) { return !chunk.plan.steps.empty(); });
  if (anything) {
    if (absl::Status status = fetch_.Open(); !status.ok()) {
      StreamEnded ended{std::move(status)};
      reconnects_ = kMaxReconnects;
      Handle(ended);
    }
  }
  while (true) {
    PollControl();
    if (over_) return;
    if (reconnect_us_ >= 0 && NowUs() >= reconnect_us_) Reconnect();
    const adapt::Actions actions = member_->Decide();
    Carry(actions);
    if (actions.finished) return;
    const absl::Duration wait = absl::Microseconds(member_->WakeUs() - NowUs());
    std::optional<LoadEvent> event = events_.Pop(std::min(absl::Now() + wait, deadline_));
    for (int i = 1; event.has_value(); ++i) {
      std::visit([this](auto& happened) { Handle(happened); }, *event);
      if (i == kMaxEventsPerPlan) break;
      event = events_.Pop(absl::InfinitePast());
    }
  }
}

void LoadSession::Reconnect() {
  reconnect_us_ = -1;
  if (absl::Status status = fetch_.Open(); !status.ok()) {
    StreamEnded ended{std::move(status)};
    Handle(ended);
    return;
  }
  member_->Apply(adapt::LinkRestored{});
}

void LoadSession::JudgeServer() {
  if (server_ == ServerState::kFailed || ServerSilent()) {
    link_.OnFailure();
  } else if (server_ == ServerState::kAnswered) {
    link_.OnSuccess();
  } else {
    link_.OnNoVerdict();
  }
}

void LoadSession::PollControl() {
  if (control_ == nullptr) return;
  if (control_->cancelled()) {
    FinishAll(RecomputeReason::kCancelled, "cancelled");
    over_ = true;
    return;
  }
  member_->SetPace(control_->compute_pace());
  const uint32_t computed = std::max(control_->computed_chunks(), options_.skip_chunks);
  if (computed > computed_chunks_) {
    computed_chunks_ = computed;
    member_->Apply(adapt::ChunksComputed{computed - options_.skip_chunks});
  }
}

void LoadSession::Carry(const adapt::Actions& actions) {
  for (const adapt::Cancel& cancel : actions.cancels) CancelAsks(cancel.chunk, cancel.first_step);
  for (const adapt::GiveUp& give_up : actions.give_ups) GiveUp(give_up);
  for (const adapt::Close& close : actions.closes) CloseChunk(close.chunk);
  for (uint32_t chunk : actions.loaded) FinishLoaded(chunk);
  TellOutcomes();
  for (const adapt::Ask& ask : actions.asks) SendAsk(ask);
  if (actions.compute.has_value() && control_ != nullptr) {
    control_->OnCompute(chunks_[actions.compute->chunk].outcome.chunk_index);
  }
}

void LoadSession::SendAsk(const adapt::Ask& ask) {
  Chunk& chunk = chunks_[ask.chunk];
  const codec::Digest& key = options_.chunk_keys[chunk.outcome.chunk_index];
  if (chunk.assembly == nullptr) {
    chunk.assembly = std::make_unique<ChunkAssembly>(
        *profile_,
        ChunkExpectation{key, options_.namespace_digest, chunk.manifest.start_token,
                         chunk.manifest.num_tokens},
        std::move(chunk.manifest), chunk.plan.steps);
    chunk.groups.resize(profile_->groups().size());
  }
  const adapt::TimeUs now = NowUs();
  if (chunk.first_ask_us < 0) {
    chunk.first_ask_us = now;
    chunk.load_bytes_before = result_.bytes;
  }
  const ChunkStep& first = chunk.plan.steps[ask.first_step];
  const ChunkStep& last = chunk.plan.steps[ask.last_step];
  FetchAsk message;
  message.ask_id = next_ask_id_++;
  message.chunk_key = key;
  message.with_header = first.with_header;
  message.first_layer = first.first_layer;
  message.num_layers = last.end_layer() - first.first_layer;
  message.deadline_ms =
      static_cast<uint32_t>(std::max<adapt::TimeUs>((ask.deadline_us - now + 999) / 1000, 1));
  message.fetch_class =
      ask.ask_class == adapt::AskClass::kBase ? FetchClass::kBase : FetchClass::kRefinement;
  chunk.assembly->Begin(message.ask_id, ask.first_step, ask.last_step);
  AskRecord& record = asks_[message.ask_id];
  record.chunk = ask.chunk;
  record.first_step = ask.first_step;
  record.last_step = ask.last_step;
  record.missing_bytes = ask.bytes;
  record.message = message;
  record.transfer = {options_.namespace_digest, key, message.first_layer, message.num_layers,
                     message.with_header};
  Transfer(message.ask_id);
}

// Gets the bytes of an ask on their way: through another load that is getting them, or from the
// server. What has failed once is not taken from others again.
void LoadSession::Transfer(uint32_t ask_id) {
  AskRecord& ask = asks_[ask_id];
  ask.via = Via::kAlone;
  if (chunks_[ask.chunk].attempt == 0) {
    const auto tell = [this, ask_id](TransferShare::Pieces pieces) {
      events_.Push(SharedBytes{ask_id, std::move(pieces)});
    };
    const TransferShare::Role role = share_.Join(ask.transfer, MemberId(ask_id), tell);
    ask.via = role == TransferShare::Role::kCarry ? Via::kCarries : Via::kFollows;
  }
  member_->Apply(adapt::AskShared{ask.chunk, ask.first_step, ask.via == Via::kFollows});
  if (ask.via == Via::kFollows) return;
  ask.asked_us = NowUs();
  if (first_ask_us_ < 0) first_ask_us_ = ask.asked_us;
  ask.expected_us = link_.OnAsked(ask.missing_bytes);
  fetch_.Ask(ask.message);
}

// The ask's bytes are not waited for any more.
void LoadSession::LeaveTransfer(uint32_t ask_id, AskRecord& ask) {
  if (ask.via == Via::kFollows) {
    share_.Leave(ask.transfer, MemberId(ask_id));
    return;
  }
  link_.OnDropped(ask.missing_bytes);
  if (ask.via == Via::kCarries) share_.Abandon(ask.transfer);
}

uint64_t LoadSession::MemberId(uint32_t ask_id) const { return (member_->id() << 32) + ask_id; }

// Takes back the chunk's asks from `first_step` on and forgets what has come of them.
void LoadSession::CancelAsks(uint32_t chunk, uint32_t first_step) {
  for (auto& [id, ask] : asks_) {
    if (!ask.live || ask.chunk != chunk || ask.last_step < first_step) continue;
    ask.live = false;
    LeaveTransfer(id, ask);
    if (ask.via != Via::kFollows) fetch_.Cancel(id);
  }
  if (chunks_[chunk].assembly != nullptr) chunks_[chunk].assembly->Drop(first_step);
}

// From here on nothing is written to the chunk and nothing is kept of it.
void LoadSession::CloseChunk(uint32_t chunk) {
  decoder_.Revoke(chunk);
  CancelAsks(chunk, 0);
  chunks_[chunk].assembly = nullptr;
}

void LoadSession::GiveUp(const adapt::GiveUp& give_up) {
  const Chunk& chunk = chunks_[give_up.chunk];
  Failure why = {chunk.failure, chunk.message, false};
  const bool failed = chunk.failure != RecomputeReason::kNone;
  switch (give_up.why) {
    case adapt::GiveUpReason::kNotStored:
      why = {chunk.plan.reason, chunk.plan.message, false};
      break;
    case adapt::GiveUpReason::kLate:
      if (!failed) why = WhyLate();
      break;
    case adapt::GiveUpReason::kFailed:
      if (!failed) why = link_failure_;
      break;
    case adapt::GiveUpReason::kAfterCut:
      why = {RecomputeReason::kAfterCut, "behind a chunk that is not loaded", false};
      break;
    case adapt::GiveUpReason::kComputed:
      why = {RecomputeReason::kComputed, "the engine computed it first", false};
      break;
    case adapt::GiveUpReason::kComputeFaster:
      if (!failed) why = {RecomputeReason::kComputeFaster, std::string(give_up.reason), false};
      break;
    case adapt::GiveUpReason::kTooLarge:
      why = {RecomputeReason::kNodeBusy,
             absl::StrCat("its bytes do not fit into a load's memory of ", terms_.memory_bytes),
             false};
      break;
  }
  CloseChunk(give_up.chunk);
  Finish(give_up.chunk, why.reason, why.message);
}

void LoadSession::FinishLoaded(uint32_t chunk) {
  Chunk& state = chunks_[chunk];
  state.outcome.level = state.plan.steps[member_->loaded_step(chunk)].level;
  Finish(chunk, RecomputeReason::kNone, "");
}

void LoadSession::Finish(uint32_t chunk, RecomputeReason reason, const std::string& message) {
  Chunk& state = chunks_[chunk];
  if (state.final) return;
  state.final = true;
  Cover(state);
  const bool loaded = reason == RecomputeReason::kNone;
  state.outcome.reason = reason;
  state.outcome.message = message;
  state.outcome.ms = Seconds((loaded ? state.written_us : NowUs()) - terms_.start_us) * 1e3;
  if (on_outcomes_) untold_.push_back(state.outcome);
}

void LoadSession::FinishAll(RecomputeReason reason, const std::string& message) {
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].final) continue;
    CloseChunk(i);
    Finish(i, reason, message);
  }
}

void LoadSession::TellOutcomes() {
  if (untold_.empty()) return;
  on_outcomes_(untold_);
  untold_.clear();
}

LoadSession::Failure LoadSession::WhyLate() const {
  if (ServerSilent()) {
    return {RecomputeReason::kServerUnavailable, "the server did not answer within the SLO", false};
  }
  return {RecomputeReason::kLate, "not loaded within the SLO", false};
}

// Asked long enough ago, and nothing came back.
bool LoadSession::ServerSilent() const {
  return first_ask_us_ >= 0 && !answered_ &&
         absl::Microseconds(NowUs() - first_ask_us_) >= kVerdictAfter;
}

}  // namespace sluice::client
