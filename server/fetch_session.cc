#include "server/fetch_session.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::server {

namespace {

uint32_t Microseconds(absl::Duration duration) {
  const int64_t us = absl::ToInt64Microseconds(duration);
  return static_cast<uint32_t>(std::clamp<int64_t>(us, 0, std::numeric_limits<uint32_t>::max()));
}

FetchResult ResultOf(const absl::Status& status) {
  if (absl::IsNotFound(status)) return FetchResult::kNotFound;
  // Out of file descriptors or memory, or a disk that does not answer: the bytes may be sound.
  if (absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) return FetchResult::kBusy;
  return FetchResult::kDamaged;
}

void Refuse(Frame* frame, FetchResult result, std::string message) {
  frame->payload.clear();
  frame->last = true;
  frame->result = result;
  frame->message = std::move(message);
}

}  // namespace

FetchSession::FetchSession(Store* store, ChunkCache* cache, Options options)
    : store_(store),
      cache_(cache),
      options_(std::move(options)),
      opened_at_(options_.clock()),
      queue_(options_.max_asks) {}

FetchSession::~FetchSession() { Abort(); }

absl::Status FetchSession::AddAsk(const Ask& ask) {
  absl::MutexLock lock(&mu_);
  auto has_room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return aborted_ || busy_.size() < kMaxBusyAnswers;
  };
  mu_.Await(absl::Condition(&has_room));
  const absl::Status status = queue_.Push(ask);
  if (status.ok() && ask.fetch_class == FetchClass::kBase) CountBase(1);
  if (!absl::IsResourceExhausted(status)) return status;
  busy_.push_back(ask.id);
  return absl::OkStatus();
}

void FetchSession::Cancel(uint32_t ask_id) {
  absl::MutexLock lock(&mu_);
  queue_.Cancel(ask_id);
}

void FetchSession::CloseInput() {
  absl::MutexLock lock(&mu_);
  input_closed_ = true;
}

void FetchSession::Abort() {
  absl::MutexLock lock(&mu_);
  aborted_ = true;
  CountBase(-static_cast<int>(bases_));
}

void FetchSession::CountBase(int change) {
  bases_ += change;
  if (options_.gate == nullptr || change == 0) return;
  if (change > 0) {
    options_.gate->BaseArrived();
  } else {
    options_.gate->BaseGone(static_cast<size_t>(-change));
  }
}

void FetchSession::YieldToBases() {
  if (options_.gate == nullptr) return;
  bool refines = false;
  {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &FetchSession::HasWork));
    const QueuedAsk* front = queue_.Front();
    refines = !aborted_ && front != nullptr && !front->cancelled &&
              front->ask.fetch_class == FetchClass::kRefinement;
  }
  if (refines) options_.gate->YieldToBases();
}

bool FetchSession::idle() const {
  absl::MutexLock lock(&mu_);
  return queue_.empty() && busy_.empty() && !serving_;
}

bool FetchSession::HasWork() const {
  return aborted_ || input_closed_ || !queue_.empty() || !busy_.empty();
}

bool FetchSession::NextFrame(Frame* frame) {
  {
    absl::MutexLock lock(&mu_);
    serving_ = false;  // the frame before this one has been sent
    if (queue_.empty()) reader_.reset();
  }
  YieldToBases();
  absl::ReleasableMutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &FetchSession::HasWork));
  if (aborted_ || (queue_.empty() && busy_.empty())) return false;
  serving_ = true;
  frame->offset = 0;
  frame->last = false;
  frame->result = FetchResult::kOk;
  frame->message.clear();
  frame->queue_delay_us = 0;
  if (!busy_.empty()) {
    frame->ask_id = busy_.front();
    busy_.pop_front();
    Refuse(frame, FetchResult::kBusy,
           absl::StrCat("max_asks_in_flight = ", options_.max_asks, " asks are not answered yet"));
    return true;
  }
  QueuedAsk queued = *queue_.Front();
  lock.Release();
  Serve(queued, frame);
  absl::MutexLock relock(&mu_);
  const bool base = queued.ask.fetch_class == FetchClass::kBase;
  if (base && options_.gate != nullptr) options_.gate->BaseMoves();
  if (frame->last) {
    queue_.Remove(queued.ask.id);
    if (base && bases_ > 0) CountBase(-1);
  } else if (QueuedAsk* stored = queue_.Find(queued.ask.id); stored != nullptr) {
    stored->header = queued.header;
    stored->next_offset = queued.next_offset;
  }
  return true;
}

absl::Status FetchSession::Prepare(QueuedAsk& queued) {
  const Ask& ask = queued.ask;
  const ChunkId id{options_.namespace_digest, ask.chunk_key};
  const bool begins = !queued.started();
  if (begins || reader_ == nullptr || reader_->header() != queued.header) {
    const LayerRange layers{ask.first_layer, begins ? ask.num_layers : 0};
    reader_.reset();
    ASSIGN_OR_RETURN(reader_, cache_->Get(id, layers));
  }
  const codec::ChunkHeader& header = *reader_->header();
  if (!begins) {
    return reader_->header() == queued.header
               ? absl::OkStatus()
               : absl::NotFoundError("the chunk was replaced while it was being sent");
  }
  if (ask.first_layer >= header.layers.size() ||
      ask.num_layers > header.layers.size() - ask.first_layer) {
    return absl::NotFoundError(absl::StrCat("layers ", ask.first_layer, " .. ",
                                            uint64_t{ask.first_layer} + ask.num_layers - 1,
                                            " asked, the chunk has ", header.layers.size()));
  }
  queued.header = reader_->header();
  queued.next_offset = ask.with_header ? 0 : header.LayerOffset(ask.first_layer);
  store_->Use(id, opened_at_);
  return absl::OkStatus();
}

void FetchSession::Serve(QueuedAsk& queued, Frame* frame) {
  const Ask& ask = queued.ask;
  const absl::Time now = options_.clock();
  frame->ask_id = ask.id;
  if (!queued.started()) frame->queue_delay_us = Microseconds(now - ask.arrived_at);
  if (queued.cancelled) return Refuse(frame, FetchResult::kCancelled, "");
  if (now >= ask.deadline) {
    return Refuse(frame, FetchResult::kLate, "the deadline passed before the ask's turn came");
  }
  if (absl::Status status = Prepare(queued); !status.ok()) {
    return Refuse(frame, ResultOf(status), std::string(status.message()));
  }
  const codec::ChunkHeader& header = *queued.header;
  const size_t last_layer = ask.first_layer + ask.num_layers - 1;
  const uint64_t first = header.LayerOffset(ask.first_layer);
  const uint64_t end = header.LayerOffset(last_layer) + header.layers[last_layer].bytes();
  // Between the header and a later layer lie bytes that were not asked for.
  const uint64_t run_end =
      queued.next_offset < header.header_bytes && ask.first_layer > 0 ? header.header_bytes : end;
  const uint64_t take = std::min<uint64_t>(options_.max_frame_bytes, run_end - queued.next_offset);
  frame->payload.resize(take);
  const std::span<std::byte> out = std::as_writable_bytes(std::span(frame->payload));
  if (absl::Status status = reader_->Read(queued.next_offset, out); !status.ok()) {
    return Refuse(frame, ResultOf(status), std::string(status.message()));
  }
  frame->offset = queued.next_offset;
  queued.next_offset += take;
  if (queued.next_offset == run_end && run_end != end) queued.next_offset = first;
  frame->last = queued.next_offset == end;
}

}  // namespace sluice::server
