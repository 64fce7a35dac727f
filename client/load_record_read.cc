#include <cmath>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client/load_record_file.h"
#include "codec/bytes.h"
#include "codec/container.h"
#include "codec/status_macros.h"
#include "sluice/v1/load_record.pb.h"

namespace sluice::client {
namespace {

// Bounds within which no sum of the planner's overflows.
constexpr adapt::TimeUs kMaxTimeUs = adapt::TimeUs{1} << 52;
constexpr adapt::TimeUs kMaxSpanUs = 1'000'000'000'000;
constexpr uint64_t kMaxStepBytes = uint64_t{1} << 40;
constexpr double kMaxComputeScale = 1e4;
constexpr double kMaxBytesPerS = 1e15;

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("load record: ", what));
}

bool IsSpan(int64_t us) { return us >= 0 && us <= kMaxSpanUs; }

bool IsRate(double bytes_per_s) { return bytes_per_s >= 0 && bytes_per_s <= kMaxBytesPerS; }

bool IsScale(double scale) {
  return scale == 0 || (scale >= 1 / kMaxComputeScale && scale <= kMaxComputeScale);
}

absl::StatusOr<adapt::LoadSpec> ReadSpec(const v1::LoadSpec& in) {
  if (in.chunks().empty() || in.chunks_size() > static_cast<int>(kMaxRecordedChunks)) {
    return Damaged("number of chunks");
  }
  if (std::abs(in.start_us()) > kMaxTimeUs || !IsSpan(in.slo_us()) || !IsSpan(in.reserve_us()) ||
      !IsSpan(in.limit_us())) {
    return Damaged("times of the load");
  }
  if (!v1::RecomputeCapability_IsValid(in.capability())) return Damaged("capability");
  adapt::LoadSpec spec;
  spec.start_us = in.start_us();
  spec.slo_us = in.slo_us();
  spec.reserve_us = in.reserve_us();
  spec.limit_us = in.limit_us();
  spec.capability = static_cast<adapt::RecomputeCapability>(in.capability());
  spec.loss_stop = in.loss_stop();
  spec.memory_bytes = in.memory_bytes();
  spec.weight = in.weight();
  if (in.decode_us_size() > kMaxRecordedSteps || !absl::c_all_of(in.decode_us(), IsSpan)) {
    return Damaged("decoding times");
  }
  spec.decode_us = {in.decode_us().begin(), in.decode_us().end()};
  for (const v1::ChunkLadder& chunk : in.chunks()) {
    if (chunk.step_bytes_size() > kMaxRecordedSteps ||
        chunk.step_bytes_size() != chunk.step_loss_size()) {
      return Damaged("steps of a chunk");
    }
    for (const uint64_t bytes : chunk.step_bytes()) {
      if (bytes > kMaxStepBytes) return Damaged("bytes of a step");
    }
    spec.chunks.push_back({{chunk.step_bytes().begin(), chunk.step_bytes().end()},
                           {chunk.step_loss().begin(), chunk.step_loss().end()},
                           chunk.num_tokens()});
  }
  if (!in.compute_us().empty() && in.compute_us_size() != in.chunks_size()) {
    return Damaged("computing times");
  }
  adapt::TimeUs left_us = kMaxSpanUs;
  for (const int64_t us : in.compute_us()) {
    if (us < 0 || us > left_us) return Damaged("computing times");
    left_us -= us;
  }
  spec.compute_us.assign(in.compute_us().begin(), in.compute_us().end());
  return spec;
}

class EventReader {
 public:
  EventReader(const adapt::LoadSpec& spec, const std::vector<std::string>& reasons)
      : spec_(spec), reasons_(reasons), last_us_(spec.start_us) {}

  absl::StatusOr<RecordedEvent> Read(const v1::LoadRecordEvent& in) {
    RecordedEvent recorded;
    if (std::abs(in.elapsed_us()) > kMaxSpanUs) return Damaged("time of an event");
    last_us_ += in.elapsed_us();
    if (std::abs(last_us_) > kMaxTimeUs) return Damaged("time of an event");
    recorded.at_us = last_us_;
    RETURN_IF_ERROR(ReadKind(in, recorded.event));
    if (in.has_actions()) RETURN_IF_ERROR(ReadActions(in.actions(), recorded.actions));
    return recorded;
  }

 private:
  absl::Status ReadKind(const v1::LoadRecordEvent& in, adapt::Event& out) {
    int kinds = 0;
    const auto set = [&](adapt::Event event) {
      out = std::move(event);
      ++kinds;
    };
    if (in.has_bytes_arrived()) {
      const v1::BytesArrived& e = in.bytes_arrived();
      set(adapt::BytesArrived{Chunk(e.chunk()), Step(e.first_step()), e.bytes()});
    }
    if (in.has_ask_shared()) {
      const v1::AskShared& e = in.ask_shared();
      set(adapt::AskShared{Chunk(e.chunk()), Step(e.first_step()), e.shared()});
    }
    if (in.has_step_loaded()) {
      set(adapt::StepLoaded{Chunk(in.step_loaded().chunk()), Step(in.step_loaded().step())});
    }
    if (in.has_step_failed()) {
      const v1::StepFailed& e = in.step_failed();
      set(adapt::StepFailed{Chunk(e.chunk()), Step(e.step()), e.may_retry()});
    }
    if (in.has_chunks_computed()) set(adapt::ChunksComputed{in.chunks_computed().num_chunks()});
    if (in.has_link_lost()) set(adapt::LinkLost{in.link_lost().reconnecting()});
    if (in.has_link_restored()) set(adapt::LinkRestored{});
    if (in.has_tick()) set(ReadTick(in.tick()));
    if (in.has_grant_base()) set(adapt::GrantBase{});
    if (in.has_grant_refinement()) set(adapt::GrantRefinement{});
    if (in.has_demoted()) set(adapt::Demoted{in.demoted().demoted()});
    if (kinds != 1) return Damaged("an event is not of one kind");
    return fault_;
  }

  adapt::Tick ReadTick(const v1::Tick& in) {
    if (in.has_link()) {
      const v1::LinkView& link = in.link();
      if (!IsSpan(link.rtt_us()) || !IsSpan(link.idle_us()) || !IsRate(link.bytes_per_s()) ||
          !IsRate(link.mean_bytes_per_s())) {
        fault_ = Damaged("link of a tick");
      }
      link_ = {link.bytes_per_s(), link.mean_bytes_per_s(), link.rtt_us(), link.stalled(),
               link.idle_us()};
    }
    if (!IsScale(in.compute_scale()) || !IsScale(in.high_compute_scale())) {
      fault_ = Damaged("computing scale of a tick");
    }
    return {link_, {in.compute_scale(), in.high_compute_scale()}};
  }

  absl::Status ReadActions(const v1::LoadActions& in, adapt::Actions& out) {
    for (const v1::CancelAction& a : in.cancels()) {
      out.cancels.push_back({Chunk(a.chunk()), Step(a.first_step()), Reason(a.reason())});
    }
    for (const v1::GiveUpAction& a : in.give_ups()) {
      if (!v1::GiveUpKind_IsValid(a.why())) fault_ = Damaged("why a chunk is given up");
      out.give_ups.push_back(
          {Chunk(a.chunk()), static_cast<adapt::GiveUpReason>(a.why()), Reason(a.reason())});
    }
    for (const v1::CloseAction& a : in.closes()) {
      out.closes.push_back({Chunk(a.chunk()), Reason(a.reason())});
    }
    for (const uint32_t chunk : in.loaded()) out.loaded.push_back(Chunk(chunk));
    for (const v1::AskAction& a : in.asks()) {
      if (std::abs(a.deadline_us()) > kMaxTimeUs) fault_ = Damaged("deadline of an ask");
      out.asks.push_back({Chunk(a.chunk()), Step(a.first_step()), Step(a.last_step()),
                          a.refinement() ? adapt::AskClass::kRefinement : adapt::AskClass::kBase,
                          a.bytes(), spec_.start_us + a.deadline_us(), Reason(a.reason())});
    }
    if (in.has_compute()) {
      out.compute = adapt::Compute{Chunk(in.compute().chunk()), Reason(in.compute().reason())};
    }
    out.finished = in.finished();
    return fault_;
  }

  // These note what is out of range; the event is refused then.
  uint32_t Chunk(uint32_t chunk) {
    if (chunk >= spec_.chunks.size()) fault_ = Damaged("a chunk that the load does not have");
    return chunk;
  }
  uint32_t Step(uint32_t step) {
    if (step >= kMaxRecordedSteps) fault_ = Damaged("a step that no chunk has");
    return step;
  }
  std::string_view Reason(uint32_t index) {
    if (index < reasons_.size()) return reasons_[index];
    fault_ = Damaged("a reason that is not there");
    return "";
  }

  const adapt::LoadSpec& spec_;
  const std::vector<std::string>& reasons_;
  adapt::TimeUs last_us_;
  adapt::LinkView link_;
  absl::Status fault_;
};

absl::StatusOr<LoadRecord> ReadMessage(const v1::LoadRecord& in) {
  LoadRecord record;
  for (const std::string* text : {&in.load_id(), &in.program(), &in.server()}) {
    if (text->size() > kMaxRecordedText) return Damaged("length of a text");
  }
  if (in.reasons_size() > kMaxRecordedReasons) return Damaged("number of reasons");
  if (in.events_size() > kMaxRecordedEvents) return Damaged("number of events");
  if (in.outcomes_size() > static_cast<int>(kMaxRecordedChunks)) return Damaged("outcomes");
  if (!IsSpan(in.slo_us())) return Damaged("SLO");
  const absl::StatusOr<codec::Digest> digest =
      codec::DigestFromBytes(in.namespace_digest(), "namespace");
  if (!digest.ok()) return Damaged(digest.status().message());
  record.load_id = in.load_id();
  record.program = in.program();
  record.server = in.server();
  record.namespace_digest = *digest;
  record.start = absl::FromUnixMicros(in.start_unix_us());
  record.chunk_tokens = in.chunk_tokens();
  record.first_chunk = in.first_chunk();
  record.slo_us = in.slo_us();
  record.omitted_events = in.omitted_events();
  record.bytes = in.bytes();
  record.ms = in.ms();
  record.reasons =
      std::make_shared<const std::vector<std::string>>(in.reasons().begin(), in.reasons().end());
  if (in.has_spec()) {
    ASSIGN_OR_RETURN(record.spec, ReadSpec(in.spec()));
  }
  EventReader reader(record.spec, *record.reasons);
  for (const v1::LoadRecordEvent& event : in.events()) {
    ASSIGN_OR_RETURN(RecordedEvent recorded, reader.Read(event));
    record.events.push_back(std::move(recorded));
  }
  for (const v1::ChunkOutcome& outcome : in.outcomes()) {
    record.outcomes.push_back(FromMessage(outcome));
  }
  return record;
}

}  // namespace

absl::StatusOr<LoadRecord> ParseRecord(std::string_view bytes) {
  if (!bytes.starts_with(kLoadRecordMagic.substr(0, bytes.size()))) {
    return absl::InvalidArgumentError("this is no load record");
  }
  if (bytes.size() > kMaxRecordBytes) return Damaged("too long");
  codec::ByteReader reader(codec::AsBytes(bytes));
  std::span<const std::byte> magic, message;
  uint32_t version = 0, zero = 0;
  uint64_t size = 0, checksum = 0;
  RETURN_IF_ERROR(reader.ReadBytes("load record: magic", kLoadRecordMagic.size(), magic));
  RETURN_IF_ERROR(reader.Read("load record: version", version));
  if (version != kLoadRecordVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "load record: version ", version, "; this program reads version ", kLoadRecordVersion));
  }
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("load record: zero", 0, 0, zero));
  RETURN_IF_ERROR(reader.Read("load record: size", size));
  RETURN_IF_ERROR(reader.ReadBytes("load record: message", size, message));
  RETURN_IF_ERROR(reader.Read("load record: checksum", checksum));
  RETURN_IF_ERROR(reader.ExpectEnd("load record"));
  const std::string_view covered = bytes.substr(0, bytes.size() - sizeof(checksum));
  if (checksum != codec::Checksum(codec::AsBytes(covered))) return Damaged("checksum");
  v1::LoadRecord parsed;
  if (!parsed.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return Damaged("the message cannot be read");
  }
  return ReadMessage(parsed);
}

}  // namespace sluice::client
