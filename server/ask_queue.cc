#include "server/ask_queue.h"

#include "absl/strings/str_cat.h"

namespace sluice::server {

AskQueue::OrderKey AskQueue::Order(const Slot& slot) {
  const Ask& ask = slot.queued.ask;
  const int urgency = slot.queued.cancelled ? 0 : static_cast<int>(ask.fetch_class);
  return {urgency, ask.deadline, slot.sequence, ask.id};
}

absl::Status AskQueue::Push(const Ask& ask) {
  if (asks_.contains(ask.id)) {
    return absl::InvalidArgumentError(absl::StrCat("ask_id: ", ask.id, " is in use"));
  }
  if (asks_.size() >= max_asks_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_asks_in_flight = ", max_asks_, " asks are not answered yet"));
  }
  Slot& slot = asks_[ask.id];
  slot.queued.ask = ask;
  slot.sequence = next_sequence_++;
  order_.insert(Order(slot));
  return absl::OkStatus();
}

void AskQueue::Cancel(uint32_t ask_id) {
  auto at = asks_.find(ask_id);
  if (at == asks_.end()) return;
  order_.erase(Order(at->second));
  at->second.queued.cancelled = true;
  order_.insert(Order(at->second));
}

QueuedAsk* AskQueue::Front() {
  return order_.empty() ? nullptr : Find(std::get<3>(*order_.begin()));
}

QueuedAsk* AskQueue::Find(uint32_t ask_id) {
  auto at = asks_.find(ask_id);
  return at == asks_.end() ? nullptr : &at->second.queued;
}

void AskQueue::Remove(uint32_t ask_id) {
  auto at = asks_.find(ask_id);
  if (at == asks_.end()) return;
  order_.erase(Order(at->second));
  asks_.erase(at);
}

}  // namespace sluice::server
