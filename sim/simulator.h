// Loads over one simulated link, in virtual time.
//
// The server answers bases before refinements, each class in the order of the asks, at the rate of
// the link's trace; asks and bytes take half a round trip each. What has arrived is decoded one
// chunk after the other. The engine computes one chunk at a time with a share of the GPU that
// follows a trace. Everything follows from the inputs: the same ones give the same outcome.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "adapt/link_estimator.h"
#include "adapt/link_scheduler.h"
#include "adapt/prefill_cost.h"
#include "sim/load_model.h"
#include "sim/rate_trace.h"

namespace sluice::sim {

// Decides for the loads of a link: what ships, or another policy. See adapt::LinkScheduler.
class LoadDriver {
 public:
  using LoadId = adapt::LinkScheduler::LoadId;

  virtual ~LoadDriver() = default;
  virtual LoadId Add(const adapt::LoadSpec& spec) = 0;
  virtual void Remove(LoadId id) = 0;
  virtual void Apply(LoadId id, const adapt::Event& event, TimeUs now_us) = 0;
  virtual void Decide(const adapt::Tick& tick, TimeUs now_us) = 0;
  virtual adapt::Actions TakeActions(LoadId id) = 0;
  virtual TimeUs WakeUs(TimeUs now_us) const { return now_us + adapt::LoadPlanner::kTickUs; }
};

// The code that ships.
class SluiceDriver : public LoadDriver {
 public:
  explicit SluiceDriver(adapt::LinkScheduler::Observer observer = nullptr)
      : scheduler_(std::move(observer)) {}

  LoadId Add(const adapt::LoadSpec& spec) override { return scheduler_.Add(spec); }
  void Remove(LoadId id) override { scheduler_.Remove(id); }
  void Apply(LoadId id, const adapt::Event& event, TimeUs now_us) override {
    scheduler_.Apply(id, event, now_us);
  }
  void Decide(const adapt::Tick& tick, TimeUs now_us) override { scheduler_.Decide(tick, now_us); }
  adapt::Actions TakeActions(LoadId id) override { return scheduler_.TakeActions(id); }
  TimeUs WakeUs(TimeUs now_us) const override { return scheduler_.WakeUs(now_us); }
  const adapt::LinkScheduler& scheduler() const { return scheduler_; }

 private:
  adapt::LinkScheduler scheduler_;
};

struct World {
  RateTrace link = ConstantRate(0);  // bytes per second
  RateTrace gpu = ConstantRate(1);   // share of it that the loads get
  TimeUs rtt_us = 1000;
  TimeUs first_token_us = 20000;  // from the last chunk to the first token
  double failure_rate = 0;        // of answered asks
  TimeUs link_lost_us = -1;       // for good, at this time; -1: never
  uint64_t seed = 1;
};

// What a client knows of a peer and an engine from one load to the next.
struct Memory {
  adapt::LinkEstimator link;
  adapt::PrefillCost cost;
};

struct SimLoad {
  adapt::LoadSpec spec;
  std::vector<TimeUs> decode_us;  // per chunk and step
  std::vector<TimeUs> work_us;    // to compute each chunk with the whole GPU
  uint32_t unit_tokens = 0;
};

SimLoad MakeLoad(const LoadModel& model, uint32_t tokens, TimeUs start_us, TimeUs slo_us,
                 const adapt::PrefillCost& cost);

struct LoadOutcome {
  TimeUs ttft_us = 0;      // from the start of the load
  std::vector<int> steps;  // per chunk; kComputed if the engine has it
  double loss = 0;         // mean over tokens
  uint64_t received_bytes = 0;
  uint64_t wasted_bytes = 0;  // of those, in no chunk at the end
  TimeUs gpu_us = 0;          // computing, times the share of the GPU
  size_t decisions = 0;       // calls of Decide

  static constexpr int kComputed = -1;
};

// Sees what happens; any may be empty. For timelines and for tests of invariants.
struct Watcher {
  std::function<void(size_t load, TimeUs, const adapt::Actions&)> actions;
  // Before the driver decides.
  std::function<void(TimeUs, const adapt::Tick&)> decide;
  std::function<void(size_t load, TimeUs, uint32_t chunk, int step)> decoded;
  std::function<void(size_t load, TimeUs, uint32_t chunk)> computed;
  std::function<void(size_t load, TimeUs, uint32_t chunk, uint64_t bytes, bool last)> arrived;
};

// Runs all loads to their ends; `memory` is used and goes on. Every load needs an end (limit_us).
std::vector<LoadOutcome> Simulate(const World& world, const std::vector<SimLoad>& loads,
                                  LoadDriver& driver, Memory& memory, const Watcher& watcher = {});

}  // namespace sluice::sim
