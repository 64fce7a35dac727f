#include "client/load_events.h"

#include <utility>

namespace sluice::client {

void LoadEvents::PushFrame(FetchFrame frame) {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &LoadEvents::HasRoom));
  if (closed_) return;
  frame_bytes_ += frame.payload.size();
  events_.emplace_back(std::move(frame));
}

void LoadEvents::Push(LoadEvent event) {
  absl::MutexLock lock(&mutex_);
  events_.push_back(std::move(event));
}

std::optional<LoadEvent> LoadEvents::Pop(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  if (!mutex_.AwaitWithDeadline(absl::Condition(this, &LoadEvents::HasEvent), deadline)) {
    return std::nullopt;
  }
  woken_ = false;
  if (events_.empty()) return std::nullopt;
  LoadEvent event = std::move(events_.front());
  events_.pop_front();
  if (const auto* frame = std::get_if<FetchFrame>(&event)) frame_bytes_ -= frame->payload.size();
  return event;
}

void LoadEvents::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
}

void LoadEvents::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

}  // namespace sluice::client
