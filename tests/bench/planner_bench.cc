// What the planner costs per event: loads of 500 chunks each, 1 and 8 on a link. A simulated run is
// recorded once and played again.
//   planner_bench --benchmark_counters_tabular=true
#include <benchmark/benchmark.h>

#include <chrono>
#include <variant>
#include <vector>

#include "sim/simulator.h"

namespace sluice::sim {
namespace {

constexpr uint32_t kChunks = 500;

// Calls of the scheduler, in their order.
struct Call {
  enum class Kind { kAdd, kRemove, kBytesArrived, kStepLoaded, kChunksComputed, kDecide };
  Kind kind = Kind::kAdd;
  LoadDriver::LoadId id = 0;
  TimeUs now_us = 0;
  adapt::LoadSpec spec;
  adapt::Event event;
  adapt::Tick tick;
};
using Kind = Call::Kind;
constexpr int kNumKinds = 6;
constexpr const char* kKindNames[kNumKinds] = {"add",         "remove",          "bytes_arrived",
                                               "step_loaded", "chunks_computed", "decide"};

class Recorder : public SluiceDriver {
 public:
  LoadId Add(const adapt::LoadSpec& spec) override {
    const LoadId id = SluiceDriver::Add(spec);
    calls_.push_back({Kind::kAdd, id, 0, spec, {}, {}});
    return id;
  }
  void Remove(LoadId id) override {
    calls_.push_back({Kind::kRemove, id, 0, {}, {}, {}});
    SluiceDriver::Remove(id);
  }
  void Apply(LoadId id, const adapt::Event& event, TimeUs now_us) override {
    const Kind kind = std::holds_alternative<adapt::BytesArrived>(event) ? Kind::kBytesArrived
                      : std::holds_alternative<adapt::StepLoaded>(event) ? Kind::kStepLoaded
                                                                         : Kind::kChunksComputed;
    calls_.push_back({kind, id, now_us, {}, event, {}});
    SluiceDriver::Apply(id, event, now_us);
  }
  void Decide(const adapt::Tick& tick, TimeUs now_us) override {
    calls_.push_back({Kind::kDecide, 0, now_us, {}, {}, tick});
    SluiceDriver::Decide(tick, now_us);
  }
  std::vector<Call> calls_;
};

std::vector<Call> Record(int loads, adapt::RecomputeCapability capability) {
  const LoadModel model;
  Memory memory;
  model.Calibrate(memory.cost);
  SimLoad load = MakeLoad(model, kChunks * model.unit_tokens, 0, loads * 4000000, memory.cost);
  load.spec.capability = capability;
  load.spec.loss_stop = 0.0005;
  World world;
  world.link = ConstantRate(1.25e9);
  Recorder recorder;
  Simulate(world, std::vector<SimLoad>(static_cast<size_t>(loads), load), recorder, memory);
  return recorder.calls_;
}

void Carry(adapt::LinkScheduler& scheduler, const Call& call) {
  switch (call.kind) {
    case Kind::kAdd:
      scheduler.Add(call.spec);
      break;
    case Kind::kRemove:
      scheduler.Remove(call.id);
      break;
    case Kind::kDecide:
      for (const adapt::LinkScheduler::LoadId id : scheduler.Decide(call.tick, call.now_us)) {
        benchmark::DoNotOptimize(scheduler.TakeActions(id));
      }
      break;
    default:
      scheduler.Apply(call.id, call.event, call.now_us);
  }
}

// Plays a recorded run; the counters are the mean microseconds of a call of each kind.
void Replay(benchmark::State& state, int loads, adapt::RecomputeCapability capability) {
  using Clock = std::chrono::steady_clock;
  const std::vector<Call> calls = Record(loads, capability);
  double spent_us[kNumKinds] = {};
  double count[kNumKinds] = {};
  for (auto _ : state) {
    adapt::LinkScheduler scheduler;
    for (const Call& call : calls) {
      const Clock::time_point start = Clock::now();
      Carry(scheduler, call);
      const std::chrono::duration<double, std::micro> spent = Clock::now() - start;
      spent_us[static_cast<int>(call.kind)] += spent.count();
      ++count[static_cast<int>(call.kind)];
    }
  }
  for (int kind = 0; kind < kNumKinds; ++kind) {
    if (count[kind] > 0) state.counters[kKindNames[kind]] = spent_us[kind] / count[kind];
  }
}

BENCHMARK_CAPTURE(Replay, bidirectional, 1, adapt::RecomputeCapability::kBidirectional);
BENCHMARK_CAPTURE(Replay, bidirectional_8_loads, 8, adapt::RecomputeCapability::kBidirectional);
BENCHMARK_CAPTURE(Replay, suffix, 1, adapt::RecomputeCapability::kSuffix);
BENCHMARK_CAPTURE(Replay, suffix_8_loads, 8, adapt::RecomputeCapability::kSuffix);
BENCHMARK_CAPTURE(Replay, load_only, 1, adapt::RecomputeCapability::kNone);
BENCHMARK_CAPTURE(Replay, load_only_8_loads, 8, adapt::RecomputeCapability::kNone);

}  // namespace
}  // namespace sluice::sim

BENCHMARK_MAIN();
