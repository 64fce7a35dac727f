#include "adapt/link_scheduler.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace sluice::adapt {
namespace {

template <typename T>
void MoveTo(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// Appends what follows to what waits, so that carrying it out at once means the same as one by one:
// an ask that is taken back before it was made is not made.
void Append(Actions& waiting, Actions&& next) {
  for (const Cancel& cancel : next.cancels) {
    std::erase_if(waiting.asks, [&](const Ask& ask) {
      return ask.chunk == cancel.chunk && ask.first_step >= cancel.first_step;
    });
  }
  MoveTo(waiting.cancels, next.cancels);
  MoveTo(waiting.give_ups, next.give_ups);
  MoveTo(waiting.closes, next.closes);
  MoveTo(waiting.loaded, next.loaded);
  MoveTo(waiting.asks, next.asks);
  if (next.compute.has_value()) waiting.compute = next.compute;
  waiting.finished = next.finished;
}

}  // namespace

LinkScheduler::LoadId LinkScheduler::Add(LoadSpec spec) {
  const LoadId id = next_id_++;
  loads_.try_emplace(id, std::move(spec));
  return id;
}

void LinkScheduler::Remove(LoadId id) { loads_.erase(id); }

void LinkScheduler::Apply(LoadId id, const Event& event, TimeUs now_us) {
  const auto found = loads_.find(id);
  if (found != loads_.end()) Feed(id, found->second, event, now_us);
}

void LinkScheduler::SetPace(LoadId id, const ComputePace& pace) {
  const auto found = loads_.find(id);
  if (found != loads_.end()) found->second.pace = pace;
}

std::vector<LinkScheduler::LoadId> LinkScheduler::Decide(const Tick& tick, TimeUs now_us) {
  Demote(tick.link, now_us);
  for (auto& [id, load] : loads_) {
    load.blocked = false;
    Feed(id, load, Tick{tick.link, load.pace.value_or(tick.pace)}, now_us);
  }
  while (GrantNextBase(tick.link, now_us)) {
  }
  while (GrantNextRefinement(tick.link, now_us)) {
  }
  std::vector<LoadId> waiting;
  for (const auto& [id, load] : loads_) {
    if (!load.waiting.empty()) waiting.push_back(id);
  }
  return waiting;
}

TimeUs LinkScheduler::WakeUs(TimeUs now_us) const {
  TimeUs wake_us = now_us + LoadPlanner::kTickUs;
  for (const auto& [id, load] : loads_) wake_us = std::min(wake_us, load.planner.WakeUs());
  return std::max(wake_us, now_us);
}

Actions LinkScheduler::TakeActions(LoadId id) {
  const auto found = loads_.find(id);
  return found == loads_.end() ? Actions{} : std::exchange(found->second.waiting, Actions{});
}

const LoadPlanner* LinkScheduler::planner(LoadId id) const {
  const auto found = loads_.find(id);
  return found == loads_.end() ? nullptr : &found->second.planner;
}

uint64_t LinkScheduler::unanswered_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, load] : loads_) bytes += load.planner.unanswered_bytes();
  return bytes;
}

uint64_t LinkScheduler::WindowBytes(const LinkView& link, AskClass ask_class) {
  if (!(link.bytes_per_s > 0)) {
    return link.stalled || ask_class == AskClass::kRefinement ? 0 : kProbeWindowBytes;
  }
  const double bytes = link.bytes_per_s * static_cast<double>(link.rtt_us + kWindowSlackUs) * 1e-6;
  return bytes < static_cast<double>(kMaxWindowBytes) ? static_cast<uint64_t>(bytes)
                                                      : kMaxWindowBytes;
}

void LinkScheduler::Feed(LoadId id, Load& load, const Event& event, TimeUs now_us) {
  Actions actions = load.planner.Apply(event, now_us);
  if (observer_) observer_(id, now_us, event, actions);
  Append(load.waiting, std::move(actions));
}

// In the order in which bases are served: a load is demoted while its bases, behind those of the
// loads before it, cannot come in time even so, and others are delayed for nothing. What is known
// of a link at first is little, so no verdict is final.
void LinkScheduler::Demote(const LinkView& link, TimeUs now_us) {
  if (!(link.bytes_per_s > 0)) return;
  std::vector<std::pair<TimeUs, LoadId>> order;
  for (const auto& [id, load] : loads_) {
    if (!load.planner.finished()) order.emplace_back(load.planner.deadline_us(), id);
  }
  std::sort(order.begin(), order.end());
  double bytes_before = 0;
  for (const auto& [deadline_us, id] : order) {
    Load& load = loads_.at(id);
    const double bytes = static_cast<double>(load.planner.MissingBaseBytes());
    const double us = (bytes_before + bytes) / (kHopeful * link.bytes_per_s) * 1e6;
    const bool late = static_cast<double>(now_us) + us > static_cast<double>(deadline_us);
    const bool hopeless = bytes > 0 && late && order.size() > 1;
    if (hopeless != load.planner.demoted()) Feed(id, load, Demoted{hopeless}, now_us);
    if (!hopeless) bytes_before += bytes;
  }
}

bool LinkScheduler::WindowAllows(const LinkView& link, AskClass ask_class, uint64_t bytes) const {
  size_t asks = 0;
  for (const auto& [id, load] : loads_) asks += load.planner.asks_in_flight();
  const size_t min_asks = link.stalled ? 1 : kMinAsksInFlight;
  return asks < min_asks || unanswered_bytes() + bytes <= WindowBytes(link, ask_class);
}

bool LinkScheduler::GrantNextBase(const LinkView& link, TimeUs now_us) {
  using Rank = std::tuple<bool, TimeUs, LoadId>;
  std::optional<Rank> best;
  uint64_t bytes = 0;
  for (const auto& [id, load] : loads_) {
    if (load.blocked) continue;
    const Rank rank(load.planner.demoted(), load.planner.deadline_us(), id);
    if (best.has_value() && *best < rank) continue;
    const std::optional<LoadPlanner::Wish> wish = load.planner.BaseWish();
    if (!wish.has_value()) continue;
    best = rank;
    bytes = wish->bytes;
  }
  if (!best.has_value() || !WindowAllows(link, AskClass::kBase, bytes)) return false;
  const LoadId id = std::get<LoadId>(*best);
  Load& load = loads_.at(id);
  load.blocked = !Grant(id, load, GrantBase{}, now_us);
  return true;
}

// False when nothing can be granted, which includes a base that waits for room in the window.
bool LinkScheduler::GrantNextRefinement(const LinkView& link, TimeUs now_us) {
  using Rank = std::tuple<bool, double, TimeUs, LoadId>;
  std::optional<Rank> best;
  uint64_t bytes = 0;
  for (const auto& [id, load] : loads_) {
    if (load.blocked) continue;
    if (load.planner.BaseWish().has_value()) return false;
    const double level = load.planner.RefinementLevel() / std::max(load.planner.weight(), 1e-6);
    const Rank rank(load.planner.demoted(), level, load.planner.deadline_us(), id);
    if (best.has_value() && *best < rank) continue;
    const std::optional<LoadPlanner::Wish> wish = load.planner.RefinementWish();
    if (!wish.has_value()) continue;
    best = rank;
    bytes = wish->bytes;
  }
  if (!best.has_value() || !WindowAllows(link, AskClass::kRefinement, bytes)) return false;
  const LoadId id = std::get<LoadId>(*best);
  Load& load = loads_.at(id);
  load.blocked = !Grant(id, load, GrantRefinement{}, now_us);
  return true;
}

// True when an ask followed.
bool LinkScheduler::Grant(LoadId id, Load& load, const Event& event, TimeUs now_us) {
  const size_t before = load.waiting.asks.size();
  Feed(id, load, event, now_us);
  return load.waiting.asks.size() > before;
}

}  // namespace sluice::adapt
