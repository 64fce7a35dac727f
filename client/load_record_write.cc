#include <algorithm>
#include <map>

#include "client/load_record_file.h"
#include "codec/bytes.h"
#include "codec/container.h"
#include "sluice/v1/load_record.pb.h"

namespace sluice::client {
namespace {

class RecordWriter {
 public:
  std::string Write(const LoadRecord& record) {
    record_ = &record;
    WriteHeader();
    if (record.planned()) WriteSpec(*message_.mutable_spec());
    adapt::TimeUs last_us = record.spec.start_us;
    for (const RecordedEvent& recorded : record.events) {
      v1::LoadRecordEvent& event = *message_.add_events();
      event.set_elapsed_us(recorded.at_us - last_us);
      last_us = recorded.at_us;
      std::visit([&](const auto& happened) { WriteEvent(happened, event); }, recorded.event);
      if (!recorded.actions.empty()) WriteActions(recorded.actions, *event.mutable_actions());
    }
    return message_.SerializeAsString();
  }

 private:
  void WriteHeader() {
    message_.set_load_id(record_->load_id);
    message_.set_program(record_->program);
    message_.set_namespace_digest(std::string(codec::DigestBytes(record_->namespace_digest)));
    message_.set_server(record_->server);
    message_.set_start_unix_us(absl::ToUnixMicros(record_->start));
    message_.set_chunk_tokens(record_->chunk_tokens);
    message_.set_first_chunk(record_->first_chunk);
    message_.set_slo_us(record_->slo_us);
    message_.set_omitted_events(record_->omitted_events);
    for (const ChunkOutcome& outcome : record_->outcomes) {
      *message_.add_outcomes() = ToMessage(outcome);
    }
    message_.set_bytes(record_->bytes);
    message_.set_ms(record_->ms);
  }

  void WriteSpec(v1::LoadSpec& out) const {
    const adapt::LoadSpec& spec = record_->spec;
    out.set_start_us(spec.start_us);
    out.set_slo_us(spec.slo_us);
    out.set_reserve_us(spec.reserve_us);
    out.set_limit_us(spec.limit_us);
    // The wire's enumerators have the same values.
    out.set_capability(static_cast<v1::RecomputeCapability>(spec.capability));
    out.set_loss_stop(spec.loss_stop);
    out.set_memory_bytes(spec.memory_bytes);
    out.set_weight(spec.weight);
    out.mutable_decode_us()->Add(spec.decode_us.begin(), spec.decode_us.end());
    for (const adapt::ChunkLadder& ladder : spec.chunks) {
      v1::ChunkLadder& chunk = *out.add_chunks();
      chunk.mutable_step_bytes()->Add(ladder.step_bytes.begin(), ladder.step_bytes.end());
      chunk.mutable_step_loss()->Add(ladder.step_loss.begin(), ladder.step_loss.end());
      chunk.set_num_tokens(ladder.num_tokens);
    }
    out.mutable_compute_us()->Add(spec.compute_us.begin(), spec.compute_us.end());
  }

  void WriteEvent(const adapt::BytesArrived& in, v1::LoadRecordEvent& out) {
    out.mutable_bytes_arrived()->set_chunk(in.chunk);
    out.mutable_bytes_arrived()->set_first_step(in.first_step);
    out.mutable_bytes_arrived()->set_bytes(in.bytes);
  }
  void WriteEvent(const adapt::AskShared& in, v1::LoadRecordEvent& out) {
    out.mutable_ask_shared()->set_chunk(in.chunk);
    out.mutable_ask_shared()->set_first_step(in.first_step);
    out.mutable_ask_shared()->set_shared(in.shared);
  }
  void WriteEvent(const adapt::StepLoaded& in, v1::LoadRecordEvent& out) {
    out.mutable_step_loaded()->set_chunk(in.chunk);
    out.mutable_step_loaded()->set_step(in.step);
  }
  void WriteEvent(const adapt::StepFailed& in, v1::LoadRecordEvent& out) {
    out.mutable_step_failed()->set_chunk(in.chunk);
    out.mutable_step_failed()->set_step(in.step);
    out.mutable_step_failed()->set_may_retry(in.may_retry);
  }
  void WriteEvent(const adapt::ChunksComputed& in, v1::LoadRecordEvent& out) {
    out.mutable_chunks_computed()->set_num_chunks(in.num_chunks);
  }
  void WriteEvent(const adapt::LinkLost& in, v1::LoadRecordEvent& out) {
    out.mutable_link_lost()->set_reconnecting(in.reconnecting);
  }
  void WriteEvent(const adapt::LinkRestored&, v1::LoadRecordEvent& out) {
    out.mutable_link_restored();
  }
  void WriteEvent(const adapt::Tick& in, v1::LoadRecordEvent& out) {
    v1::Tick& tick = *out.mutable_tick();
    tick.set_compute_scale(in.pace.scale);
    tick.set_high_compute_scale(in.pace.high_scale);
    if (in.link == last_link_) return;
    last_link_ = in.link;
    v1::LinkView& link = *tick.mutable_link();
    link.set_bytes_per_s(in.link.bytes_per_s);
    link.set_mean_bytes_per_s(in.link.mean_bytes_per_s);
    link.set_rtt_us(in.link.rtt_us);
    link.set_stalled(in.link.stalled);
    link.set_idle_us(in.link.idle_us);
  }
  void WriteEvent(const adapt::GrantBase&, v1::LoadRecordEvent& out) { out.mutable_grant_base(); }
  void WriteEvent(const adapt::GrantRefinement&, v1::LoadRecordEvent& out) {
    out.mutable_grant_refinement();
  }
  void WriteEvent(const adapt::Demoted& in, v1::LoadRecordEvent& out) {
    out.mutable_demoted()->set_demoted(in.demoted);
  }

  void WriteActions(const adapt::Actions& in, v1::LoadActions& out) {
    for (const adapt::Cancel& cancel : in.cancels) {
      v1::CancelAction& action = *out.add_cancels();
      action.set_chunk(cancel.chunk);
      action.set_first_step(cancel.first_step);
      action.set_reason(ReasonIndex(cancel.reason));
    }
    for (const adapt::GiveUp& give_up : in.give_ups) {
      v1::GiveUpAction& action = *out.add_give_ups();
      action.set_chunk(give_up.chunk);
      action.set_why(static_cast<v1::GiveUpKind>(give_up.why));
      action.set_reason(ReasonIndex(give_up.reason));
    }
    for (const adapt::Close& close : in.closes) {
      v1::CloseAction& action = *out.add_closes();
      action.set_chunk(close.chunk);
      action.set_reason(ReasonIndex(close.reason));
    }
    out.mutable_loaded()->Add(in.loaded.begin(), in.loaded.end());
    for (const adapt::Ask& ask : in.asks) {
      v1::AskAction& action = *out.add_asks();
      action.set_chunk(ask.chunk);
      action.set_first_step(ask.first_step);
      action.set_last_step(ask.last_step);
      action.set_refinement(ask.ask_class == adapt::AskClass::kRefinement);
      action.set_bytes(ask.bytes);
      action.set_deadline_us(ask.deadline_us - record_->spec.start_us);
      action.set_reason(ReasonIndex(ask.reason));
    }
    if (in.compute.has_value()) {
      out.mutable_compute()->set_chunk(in.compute->chunk);
      out.mutable_compute()->set_reason(ReasonIndex(in.compute->reason));
    }
    out.set_finished(in.finished);
  }

  uint32_t ReasonIndex(std::string_view reason) {
    const auto index = static_cast<uint32_t>(reason_indices_.size());
    const auto [found, fresh] = reason_indices_.try_emplace(reason, index);
    if (fresh) message_.add_reasons(std::string(reason));
    return found->second;
  }

  const LoadRecord* record_ = nullptr;
  v1::LoadRecord message_;
  adapt::LinkView last_link_;
  std::map<std::string_view, uint32_t> reason_indices_;
};

static_assert(static_cast<int>(adapt::GiveUpReason::kNotStored) == v1::GIVE_UP_KIND_NOT_STORED);
static_assert(static_cast<int>(adapt::GiveUpReason::kComputeFaster) ==
              v1::GIVE_UP_KIND_COMPUTE_FASTER);
static_assert(static_cast<int>(adapt::RecomputeCapability::kAny) == v1::RECOMPUTE_CAPABILITY_ANY);

}  // namespace

std::string SerializeRecord(const LoadRecord& record) {
  const std::string message = RecordWriter().Write(record);
  codec::ByteWriter writer;
  writer.WriteBytes(codec::AsBytes(kLoadRecordMagic));
  writer.Write<uint32_t>(kLoadRecordVersion);
  writer.Write<uint32_t>(0);
  writer.Write<uint64_t>(message.size());
  writer.WriteBytes(codec::AsBytes(message));
  writer.Write<uint64_t>(codec::Checksum(writer.bytes()));
  return std::move(writer).Take();
}

void SealRecord(std::string& bytes) {
  bytes.resize(bytes.size() - sizeof(uint64_t));
  const uint64_t checksum = codec::Checksum(codec::AsBytes(bytes));
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
}

}  // namespace sluice::client
