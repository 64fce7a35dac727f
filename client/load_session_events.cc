// What a load does about frames, decoded groups and the end of its stream.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/load_session.h"

namespace sluice::client {
namespace {

double Milliseconds(adapt::TimeUs us) { return static_cast<double>(us) * 1e-3; }

}  // namespace

LoadSession::Failure LoadSession::FailureOf(absl::StatusCode code, const std::string& message) {
  switch (code) {
    case absl::StatusCode::kNotFound:
      return {RecomputeReason::kNotStored, message, false};
    case absl::StatusCode::kDataLoss:
      return {RecomputeReason::kDamaged, message, false};
    case absl::StatusCode::kUnimplemented:
      return {RecomputeReason::kUnsupported, message, false};
    default:
      return {RecomputeReason::kServerUnavailable, message, false};
  }
}

void LoadSession::Handle(FetchFrame& frame) {
  if (!refused_.ok()) return;
  const auto found = asks_.find(frame.ask_id);
  if (found == asks_.end()) {
    refused_ =
        absl::DataLossError(absl::StrCat("frame for ask ", frame.ask_id, ", which was not made"));
    fetch_.Abort();
    return;
  }
  AskRecord& ask = found->second;
  Chunk& chunk = chunks_[ask.chunk];
  result_.bytes += frame.payload.size();
  if (!chunk.final) chunk.outcome.bytes += frame.payload.size();
  answered_ = true;
  if (!ask.answered) {
    ask.answered = true;
    if (ask.live) link_.OnFirstByte(NowUs() - ask.asked_us, frame.queue_delay_us);
  }
  if (ask.live && FrameOk(frame) && TakeBytes(frame.ask_id, frame.offset, frame.payload)) {
    if (ask.via == Via::kCarries) ask.pieces.push_back({frame.offset, std::move(frame.payload)});
    if (frame.last) EndAsk(frame.ask_id);
  }
  if (frame.last) asks_.erase(frame.ask_id);
}

void LoadSession::Handle(SharedBytes& shared) {
  const auto found = asks_.find(shared.ask_id);
  if (found == asks_.end()) return;
  if (shared.pieces == nullptr && found->second.live) {
    Transfer(shared.ask_id);
    return;
  }
  bool good = found->second.live;
  for (size_t i = 0; good && i < shared.pieces->size(); ++i) {
    const TransferShare::Piece& piece = (*shared.pieces)[i];
    chunks_[found->second.chunk].outcome.bytes += piece.payload.size();
    good = TakeBytes(shared.ask_id, piece.offset, piece.payload);
  }
  if (good) EndAsk(shared.ask_id);
  asks_.erase(shared.ask_id);
}

// False when the ask has failed.
bool LoadSession::FrameOk(const FetchFrame& frame) {
  const std::string message(frame.status.message());
  switch (frame.status.code()) {
    case absl::StatusCode::kOk:
      return true;
    case absl::StatusCode::kNotFound:
      FailAsk(frame.ask_id, {RecomputeReason::kNotStored, message, false});
      return false;
    case absl::StatusCode::kDeadlineExceeded:
      FailAsk(frame.ask_id, {RecomputeReason::kLate, message, false});
      return false;
    case absl::StatusCode::kDataLoss:
      FailAsk(frame.ask_id, {RecomputeReason::kDamaged, message, true});
      return false;
    default:
      FailAsk(frame.ask_id, {RecomputeReason::kServerUnavailable, message, true});
      return false;
  }
}

// False when the ask has failed.
bool LoadSession::TakeBytes(uint32_t ask_id, uint64_t offset, const std::string& payload) {
  AskRecord& ask = asks_[ask_id];
  const uint64_t bytes = std::min<uint64_t>(payload.size(), ask.missing_bytes);
  ask.missing_bytes -= bytes;
  if (ask.via != Via::kFollows) link_.OnBytes(bytes);
  member_->Apply(adapt::BytesArrived{ask.chunk, ask.first_step, bytes});
  Chunk& chunk = chunks_[ask.chunk];
  const adapt::TimeUs elapsed_us = NowUs() - chunk.first_ask_us;
  if (elapsed_us > 0) {
    chunk.outcome.bytes_per_s = static_cast<double>(result_.bytes - chunk.load_bytes_before) * 1e6 /
                                static_cast<double>(elapsed_us);
  }
  const absl::StatusOr<std::vector<size_t>> groups = chunk.assembly->Add(ask_id, offset, payload);
  if (groups.ok()) {
    for (size_t group : *groups) SubmitDecode(ask.chunk, group);
    return true;
  }
  const bool unsupported = groups.status().code() != absl::StatusCode::kDataLoss;
  FailAsk(ask_id, {unsupported ? RecomputeReason::kUnsupported : RecomputeReason::kDamaged,
                   std::string(groups.status().message()), !unsupported});
  return false;
}

// All that was announced of the answer is here.
void LoadSession::EndAsk(uint32_t ask_id) {
  AskRecord& ask = asks_[ask_id];
  Chunk& chunk = chunks_[ask.chunk];
  if (ask.via != Via::kFollows && ask.expected_us > 0) {
    const adapt::TimeUs actual_us = NowUs() - ask.asked_us;
    chunk.outcome.expected_ms += Milliseconds(ask.expected_us);
    chunk.outcome.transfer_ms += Milliseconds(actual_us);
    link_.OnForecast(ask.expected_us, actual_us);
  }
  if (absl::Status status = chunk.assembly->End(ask_id); !status.ok()) {
    FailAsk(ask_id, {RecomputeReason::kDamaged, std::string(status.message()), true});
    return;
  }
  if (ask.via != Via::kCarries) return;
  share_.Complete(ask.transfer,
                  std::make_shared<const std::vector<TransferShare::Piece>>(std::move(ask.pieces)));
}

void LoadSession::FailAsk(uint32_t ask_id, const Failure& failure) {
  const AskRecord ask = asks_[ask_id];
  FailStep(ask.chunk, ask.first_step, failure);
}

// The bytes of a step are not to be had or not to be used. Earlier steps stay.
void LoadSession::FailStep(uint32_t chunk, uint32_t step, const Failure& failure) {
  Chunk& state = chunks_[chunk];
  if (step == 0) {
    state.failure = failure.reason;
    state.message = failure.message;
    ++state.attempt;
  }
  CancelAsks(chunk, step);
  member_->Apply(adapt::StepFailed{chunk, step, failure.may_retry});
}

// Has the group decoded at the best step that is here; what waits for the decoder is replaced.
void LoadSession::SubmitDecode(uint32_t chunk, size_t group) {
  Chunk& state = chunks_[chunk];
  if (state.assembly == nullptr) return;
  Group& progress = state.groups[group];
  const int ready = state.assembly->ReadyStep(group);
  if (ready <= std::max(progress.done, progress.decoding)) return;
  const bool waits = progress.decoding >= 0;
  if (progress.decoding == 0 && !MayPassOverBase(state.plan.steps[ready].level)) return;
  DecodeTask task = {chunk, state.outcome.chunk_index,          state.attempt, group,
                     ready, state.assembly->Input(group, ready)};
  if (!waits) {
    decoder_.Submit(std::move(task));
  } else if (!decoder_.Replace(std::move(task))) {
    return;  // what is being decoded comes first
  }
  progress.decoding = ready;
}

bool LoadSession::MayPassOverBase(codec::Level level) const {
  const adapt::TimeUs decode_us = pool_.DecodeUs(level, terms_.chunk_bytes * uncovered_);
  const adapt::TimeUs left_us = terms_.start_us + terms_.slo_us - NowUs();
  return decode_us > 0 && static_cast<double>(decode_us) < kPassOver * static_cast<double>(left_us);
}

void LoadSession::Cover(Chunk& chunk) {
  uncovered_ -= chunk.covered ? 0 : 1;
  chunk.covered = true;
}

void LoadSession::Handle(GroupDone& done) {
  Chunk& chunk = chunks_[done.chunk];
  if (chunk.assembly == nullptr) return;
  Group& group = chunk.groups[done.group];
  group.decoding = -1;
  if (done.result == GroupDone::Result::kSinkFailed) {
    FinishAll(RecomputeReason::kNodeBusy,
              absl::StrCat("destination: ", std::string(done.status.message())));
    over_ = true;
    return;
  }
  if (done.result == GroupDone::Result::kWritten) {
    group.done = std::max(group.done, done.step);
    chunk.written_us = std::max(chunk.written_us, done.at_us);
    int step = group.done;
    for (const Group& other : chunk.groups) step = std::min(step, other.done);
    if (step > member_->loaded_step(done.chunk)) {
      Cover(chunk);
      member_->Apply(adapt::StepLoaded{done.chunk, static_cast<uint32_t>(step)});
    }
  } else if (done.attempt == chunk.attempt) {
    // A layer that fails its checksum names the step; bytes that pass and still cannot be decoded
    // are the last step's.
    uint32_t step = static_cast<uint32_t>(done.step);
    for (uint32_t i = 0; done.bad_layer >= 0 && i < chunk.plan.steps.size(); ++i) {
      const ChunkStep& candidate = chunk.plan.steps[i];
      const uint32_t layer = static_cast<uint32_t>(done.bad_layer);
      if (layer >= candidate.first_layer && layer < candidate.end_layer()) step = i;
    }
    FailStep(done.chunk, step,
             {RecomputeReason::kDamaged,
              absl::StrCat("group ", done.group, ": ", std::string(done.status.message())), true});
  }
  SubmitDecode(done.chunk, done.group);
}

void LoadSession::Handle(StreamEnded& ended) {
  for (auto& [id, ask] : asks_) {
    if (ask.live) LeaveTransfer(id, ask);
  }
  asks_.clear();
  const absl::Status& status = refused_.ok() ? ended.status : refused_;
  link_failure_ = FailureOf(status.code(), std::string(status.message()));
  const bool expired = status.code() == absl::StatusCode::kDeadlineExceeded;
  if (expired) link_failure_ = WhyLate();
  const bool broken = link_failure_.reason == RecomputeReason::kServerUnavailable && !expired;
  if (broken && reconnects_ < kMaxReconnects) {
    member_->Apply(adapt::LinkLost{true});
    const adapt::TimeUs pause_us = reconnects_ == 0 ? 0 : kMinReconnectPauseUs << (reconnects_ - 1);
    ++reconnects_;
    reconnect_us_ = NowUs() + pause_us;
    return;
  }
  if (broken) server_ = ServerState::kFailed;
  member_->Apply(adapt::LinkLost{false});
}

}  // namespace sluice::client
