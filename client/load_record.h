// The record of a load: what was known, what happened, what was decided upon it and what came of
// it.
//
// From it every decision can be explained and made again: the planner is a pure function of what is
// recorded. Plain values; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "adapt/load_types.h"
#include "client/chunk_outcome.h"
#include "codec/digest.h"

namespace sluice::client {

// Loads of more chunks are not recorded.
inline constexpr size_t kMaxRecordedChunks = size_t{1} << 14;

struct RecordedEvent {
  adapt::TimeUs at_us = 0;
  adapt::Event event;
  adapt::Actions actions;  // that followed from it

  bool operator==(const RecordedEvent&) const = default;
};

// The events of a running load, as many as a limit of memory admits.
class EventLog {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{8} << 20;  // in memory

  explicit EventLog(uint64_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  // What comes after the load's end is left out: nothing follows from it.
  void Add(adapt::TimeUs at_us, const adapt::Event& event, const adapt::Actions& actions);

  std::deque<RecordedEvent> TakeEvents() { return std::move(events_); }
  uint64_t omitted_events() const { return omitted_events_; }  // that came when the log was full

 private:
  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  bool over_ = false;
  std::deque<RecordedEvent> events_;
  uint64_t omitted_events_ = 0;
};

struct LoadRecord {
  std::string load_id;
  std::string program;  // that recorded it, with its version
  std::string server;
  codec::Digest namespace_digest = {};
  absl::Time start;
  uint32_t chunk_tokens = 0;
  uint32_t first_chunk = 0;  // of the context; in spec and events it is 0
  adapt::TimeUs slo_us = 0;
  adapt::LoadSpec spec;  // without chunks: the load ended before it was planned
  std::deque<RecordedEvent> events;
  uint64_t omitted_events = 0;  // that came later and are not here
  std::vector<ChunkOutcome> outcomes;
  uint64_t bytes = 0;
  double ms = 0;
  // Owns the actions' reasons if the record was read from a file.
  std::shared_ptr<const std::vector<std::string>> reasons;

  bool planned() const { return !spec.chunks.empty(); }
};

// How a record contradicts what the planner decides.
struct ReplayDifference {
  size_t event = 0;        // index of the first event with other actions; events.size(): an outcome
  adapt::Actions decided;  // upon it by the planner
  std::string what;        // for people
};
// Lets a planner decide upon the recorded events. Nothing: all decisions follow from them, and
// every chunk that is said to be loaded was.
std::optional<ReplayDifference> Replay(const LoadRecord& record);

// "bytes_arrived chunk 3 step 0: 1234 bytes"; one line each.
std::string DescribeEvent(const adapt::Event& event);
std::vector<std::string> DescribeActions(const adapt::Actions& actions);

}  // namespace sluice::client
