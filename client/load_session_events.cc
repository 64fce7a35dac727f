// What a load does about frames, decoded groups and the end of its stream.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/load_session.h"

namespace sluice::client {

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
  if (ask.live && TakePayload(frame, ask) && frame.last) {
    if (absl::Status status = chunk.assembly->End(frame.ask_id); !status.ok()) {
      FailAsk(frame.ask_id, {RecomputeReason::kDamaged, std::string(status.message()), true});
    }
  }
  if (frame.last) asks_.erase(frame.ask_id);
}

// False when the ask has failed.
bool LoadSession::TakePayload(const FetchFrame& frame, AskRecord& ask) {
  const std::string message(frame.status.message());
  switch (frame.status.code()) {
    case absl::StatusCode::kOk:
      break;
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
  const uint64_t bytes = std::min<uint64_t>(frame.payload.size(), ask.missing_bytes);
  ask.missing_bytes -= bytes;
  link_.OnBytes(bytes);
  member_->Apply(adapt::BytesArrived{ask.chunk, ask.first_step, bytes});
  Chunk& chunk = chunks_[ask.chunk];
  const adapt::TimeUs elapsed_us = NowUs() - chunk.first_ask_us;
  if (elapsed_us > 0) {
    chunk.outcome.bytes_per_s = static_cast<double>(result_.bytes - chunk.load_bytes_before) * 1e6 /
                                static_cast<double>(elapsed_us);
  }
  const absl::StatusOr<std::vector<size_t>> groups =
      chunk.assembly->Add(frame.ask_id, frame.offset, frame.payload);
  if (groups.ok()) {
    for (size_t group : *groups) SubmitDecode(ask.chunk, group);
    return true;
  }
  const bool unsupported = groups.status().code() != absl::StatusCode::kDataLoss;
  FailAsk(frame.ask_id, {unsupported ? RecomputeReason::kUnsupported : RecomputeReason::kDamaged,
                         std::string(groups.status().message()), !unsupported});
  return false;
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

void LoadSession::SubmitDecode(uint32_t chunk, size_t group) {
  Chunk& state = chunks_[chunk];
  if (state.assembly == nullptr || state.groups[group].decoding) return;
  const int ready = state.assembly->ReadyStep(group);
  if (ready <= state.groups[group].done) return;
  state.groups[group].decoding = true;
  decoder_.Submit({chunk, state.outcome.chunk_index, state.attempt, group, ready,
                   state.assembly->Input(group, ready)});
}

void LoadSession::Handle(GroupDone& done) {
  Chunk& chunk = chunks_[done.chunk];
  if (chunk.assembly == nullptr) return;
  Group& group = chunk.groups[done.group];
  group.decoding = false;
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
  for (const auto& [id, ask] : asks_) {
    if (ask.live) link_.OnDropped(ask.missing_bytes);
  }
  asks_.clear();
  const absl::Status& status = refused_.ok() ? ended.status : refused_;
  link_failure_ = FailureOf(status.code(), std::string(status.message()));
  const bool expired = status.code() == absl::StatusCode::kDeadlineExceeded;
  if (expired) link_failure_ = WhyLate();
  const bool broken = link_failure_.reason == RecomputeReason::kServerUnavailable && !expired;
  if (broken && reconnects_ < kMaxReconnects) {
    ++reconnects_;
    member_->Apply(adapt::LinkLost{true});
    if (fetch_.Open().ok()) {
      member_->Apply(adapt::LinkRestored{});
      return;
    }
  }
  if (broken) server_ = ServerState::kFailed;
  member_->Apply(adapt::LinkLost{false});
}

}  // namespace sluice::client
