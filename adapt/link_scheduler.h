// Shares one link among the loads that use it.
//
// All bases come before any refinement, the earliest deadline first; refinement is max-min fair:
// the load whose chunks have been raised least, by its weight, is served next. A load whose bases
// cannot come in time is demoted: it gets what the others leave. One window of unanswered bytes, a
// little more than the link's bandwidth times its delay, bounds what is under way, so that every
// decision can still be changed.
//
// One per link. Pure; one thread at a time. Times are microseconds on the caller's monotonic clock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "adapt/planner.h"

namespace sluice::adapt {

class LinkScheduler {
 public:
  static constexpr size_t kMinAsksInFlight = 2;    // allowed whatever the window, so no idle link
  static constexpr TimeUs kWindowSlackUs = 20000;  // beyond the round trip
  static constexpr uint64_t kProbeWindowBytes = uint64_t{4} << 20;  // throughput unknown
  static constexpr uint64_t kMaxWindowBytes = uint64_t{64} << 20;
  static constexpr double kHopeful = 0.8;  // of the estimate, when judging what cannot be in time

  using LoadId = uint64_t;
  // Sees every event of every load with the actions that follow from it, for records.
  using Observer = std::function<void(LoadId, TimeUs, const Event&, const Actions&)>;

  // `observer` may be empty.
  explicit LinkScheduler(Observer observer = nullptr) : observer_(std::move(observer)) {}

  LoadId Add(LoadSpec spec);
  void Remove(LoadId id);
  // Tells one load what happened. What follows from it waits in TakeActions.
  void Apply(LoadId id, const Event& event, TimeUs now_us);
  // The pace of the load's engine from now on, where engines differ: instead of that of the ticks.
  void SetPace(LoadId id, const ComputePace& pace);
  // Lets time pass for all loads and hands out the link. Returns the loads for which actions wait.
  std::vector<LoadId> Decide(const Tick& tick, TimeUs now_us);
  // When Decide is due at the latest, after one at `now_us`.
  TimeUs WakeUs(TimeUs now_us) const;
  // Empty for a load that is not there.
  Actions TakeActions(LoadId id);
  // Null for a load that is not there.
  const LoadPlanner* planner(LoadId id) const;

  size_t num_loads() const { return loads_.size(); }
  uint64_t unanswered_bytes() const;
  // Most unanswered bytes that the view allows (besides kMinAsksInFlight), that ask included. While
  // nothing is known of the link, bases alone are let ahead: refinements that fill a slow link's
  // queues could not make way for the bases of the next load.
  static uint64_t WindowBytes(const LinkView& link, AskClass ask_class);

 private:
  struct Load {
    explicit Load(LoadSpec spec) : planner(std::move(spec)) {}

    LoadPlanner planner;
    Actions waiting;
    std::optional<ComputePace> pace;
    bool blocked = false;  // a grant led to nothing
  };

  void Feed(LoadId id, Load& load, const Event& event, TimeUs now_us);
  void Demote(const LinkView& link, TimeUs now_us);
  bool WindowAllows(const LinkView& link, AskClass ask_class, uint64_t bytes) const;
  bool GrantNextBase(const LinkView& link, TimeUs now_us);
  bool GrantNextRefinement(const LinkView& link, TimeUs now_us);
  bool Grant(LoadId id, Load& load, const Event& event, TimeUs now_us);

  Observer observer_;
  std::map<LoadId, Load> loads_;
  LoadId next_id_ = 1;
};

}  // namespace sluice::adapt
