#include "sim/simulator.h"

#include <gtest/gtest.h>

#include <utility>

namespace sluice::sim {
namespace {

using adapt::Actions;
using adapt::AskClass;
using adapt::RecomputeCapability;

constexpr TimeUs kSlo = 1000000;
constexpr TimeUs kReserve = 30000;
constexpr TimeUs kDecodeUs = 100;
constexpr TimeUs kWorkUs = 10000;
constexpr double kRate = 1e8;            // bytes per second: 100 bytes a microsecond
constexpr uint64_t kMegabyte = 1000000;  // 10 ms on such a link
constexpr double kRoundingUs = 50;       // of frames to whole microseconds

// Chunks of one step each unless told otherwise.
SimLoad Load(size_t chunks, RecomputeCapability capability = RecomputeCapability::kNone,
             adapt::ChunkLadder ladder = {{kMegabyte}, {0}, 256}) {
  SimLoad load;
  load.spec.slo_us = kSlo;
  load.spec.reserve_us = kReserve;
  load.spec.limit_us = 2 * kSlo;
  load.spec.capability = capability;
  load.spec.chunks.assign(chunks, std::move(ladder));
  load.decode_us.assign(chunks, kDecodeUs);
  load.work_us.assign(chunks, kWorkUs);
  load.unit_tokens = 256;
  return load;
}

World Link(double bytes_per_s = kRate) {
  World world;
  world.link = ConstantRate(bytes_per_s);
  return world;
}

// The load under the code that ships.
LoadOutcome Play(const World& world, const SimLoad& load, const Watcher& watcher = {}) {
  SluiceDriver driver;
  Memory memory;
  return Simulate(world, {load}, driver, memory, watcher)[0];
}

// Does what it is told at given times, for one load; ends when told.
class Script : public LoadDriver {
 public:
  explicit Script(std::vector<std::pair<TimeUs, Actions>> acts) : acts_(std::move(acts)) {}

  LoadId Add(const adapt::LoadSpec&) override { return 1; }
  void Remove(LoadId) override {}
  void Apply(LoadId, const adapt::Event&, TimeUs) override {}
  void Decide(const adapt::Tick&, TimeUs now_us) override { now_us_ = now_us; }
  Actions TakeActions(LoadId) override {
    if (next_ == acts_.size() || acts_[next_].first > now_us_) return {};
    return acts_[next_++].second;
  }

 private:
  const std::vector<std::pair<TimeUs, Actions>> acts_;
  size_t next_ = 0;
  TimeUs now_us_ = 0;
};

Actions Asks(uint32_t chunk, AskClass ask_class, uint64_t bytes) {
  Actions actions;
  actions.asks.push_back({chunk, 0, 0, ask_class, bytes, kSlo, ""});
  return actions;
}

Actions Ends() {
  Actions actions;
  actions.finished = true;
  return actions;
}

TEST(SimSimulator, ATransferTakesARoundTripAndItsBytes) {
  for (const TimeUs rtt : {0, 1000, 50000}) {
    World world = Link();
    world.rtt_us = rtt;
    const LoadOutcome outcome = Play(world, Load(1));
    EXPECT_NEAR(static_cast<double>(outcome.ttft_us),
                static_cast<double>(rtt + 10000 + kDecodeUs + world.first_token_us), kRoundingUs);
    EXPECT_EQ(outcome.received_bytes, kMegabyte);
    EXPECT_EQ(outcome.wasted_bytes, 0u);
    EXPECT_EQ(outcome.steps, std::vector<int>{0});
  }
}

TEST(SimSimulator, TransfersFollowOneAnotherWithoutAGap) {
  const LoadOutcome outcome = Play(Link(), Load(20));
  EXPECT_NEAR(static_cast<double>(outcome.ttft_us), 1000 + 20 * 10000 + kDecodeUs + 20000,
              20 * kRoundingUs);
}

TEST(SimSimulator, TransfersFollowTheTrace) {
  World world = Link();
  world.link = RateTrace({kRate, 0}, 5500);  // half of the time nothing
  const LoadOutcome outcome = Play(world, Load(1));
  // 5 ms from .5 ms on, 5.5 ms of nothing, 5 ms.
  EXPECT_NEAR(static_cast<double>(outcome.ttft_us), 1000 + 15500 + kDecodeUs + 20000, kRoundingUs);
}

TEST(SimSimulator, BasesOvertakeRefinements) {
  Script driver({{0, Asks(0, AskClass::kRefinement, 10 * kMegabyte)},
                 {10000, Asks(1, AskClass::kBase, kMegabyte)},
                 {200000, Ends()}});
  std::vector<TimeUs> decoded(2);
  Watcher watcher;
  watcher.decoded = [&](size_t, TimeUs now_us, uint32_t chunk, int) { decoded[chunk] = now_us; };
  Memory memory;
  Simulate(Link(), {Load(2)}, driver, memory, watcher);
  // After the frame that was on its way.
  EXPECT_NEAR(static_cast<double>(decoded[1]), 10000 + 1000 + 10000 + kDecodeUs,
              1000 + kRoundingUs);
  EXPECT_NEAR(static_cast<double>(decoded[0]), 1000 + 110000 + kDecodeUs, 500);
}

TEST(SimSimulator, ACancelledAskFreesTheLink) {
  Actions other = Asks(1, AskClass::kRefinement, kMegabyte);
  other.cancels.push_back({0, 0, ""});
  Script driver(
      {{0, Asks(0, AskClass::kRefinement, 10 * kMegabyte)}, {20000, other}, {60000, Ends()}});
  TimeUs decoded = 0;
  Watcher watcher;
  watcher.decoded = [&](size_t, TimeUs now_us, uint32_t chunk, int) {
    EXPECT_EQ(chunk, 1u);
    decoded = now_us;
  };
  Memory memory;
  const LoadOutcome outcome = Simulate(Link(), {Load(2)}, driver, memory, watcher)[0];
  EXPECT_NEAR(static_cast<double>(decoded), 20000 + 1000 + 10000 + kDecodeUs, 1000 + kRoundingUs);
  EXPECT_EQ(outcome.received_bytes - outcome.wasted_bytes, kMegabyte);
  EXPECT_NEAR(static_cast<double>(outcome.wasted_bytes), 2 * kMegabyte, kMegabyte / 5);
  EXPECT_EQ(memory.link.outstanding_bytes(), 0u);
}

TEST(SimSimulator, LoadsShareTheLink) {
  SluiceDriver driver;
  Memory memory;
  SimLoad later = Load(10);
  later.spec.start_us = 1000;
  const std::vector<LoadOutcome> outcomes = Simulate(Link(), {Load(10), later}, driver, memory);
  EXPECT_NEAR(static_cast<double>(outcomes[1].ttft_us + 1000), 1000 + 200000 + kDecodeUs + 20000,
              20 * kRoundingUs);
  EXPECT_LT(outcomes[0].ttft_us, outcomes[1].ttft_us);
}

TEST(SimSimulator, TheEngineWorksAtItsShare) {
  World world = Link(0);
  world.gpu = ConstantRate(0.5);
  std::vector<TimeUs> computed;
  Watcher watcher;
  watcher.computed = [&](size_t, TimeUs now_us, uint32_t) { computed.push_back(now_us); };
  const LoadOutcome outcome = Play(world, Load(3, RecomputeCapability::kBidirectional), watcher);
  EXPECT_EQ(computed, (std::vector<TimeUs>{20000, 40000, 60000}));
  EXPECT_EQ(outcome.ttft_us, 60000 + world.first_token_us);
  EXPECT_EQ(outcome.gpu_us, 3 * kWorkUs);
  EXPECT_EQ(outcome.steps, std::vector<int>(3, LoadOutcome::kComputed));
  EXPECT_EQ(outcome.loss, 0);
}

TEST(SimSimulator, WhatNoOneHasIsComputedInTheEnd) {
  const LoadOutcome outcome = Play(Link(0), Load(3));
  EXPECT_EQ(outcome.ttft_us, 2 * kSlo + 3 * kWorkUs + 20000);
  EXPECT_EQ(outcome.gpu_us, 3 * kWorkUs);
}

TEST(SimSimulator, AFailedAskWastesItsBytes) {
  World world = Link();
  world.failure_rate = 1;
  const LoadOutcome outcome = Play(world, Load(2));
  EXPECT_EQ(outcome.received_bytes, 2u * adapt::LoadPlanner::kMaxBaseAttempts * kMegabyte);
  EXPECT_EQ(outcome.wasted_bytes, outcome.received_bytes);
  EXPECT_EQ(outcome.steps, std::vector<int>(2, LoadOutcome::kComputed));
}

TEST(SimSimulator, NothingArrivesOnALostLink) {
  World world = Link();
  world.link_lost_us = 25000;
  const LoadOutcome outcome = Play(world, Load(10));
  EXPECT_EQ(outcome.ttft_us, 25000 + 8 * kWorkUs + world.first_token_us);
  EXPECT_LE(outcome.received_bytes, 25000 * kRate / 1e6);
}

TEST(SimSimulator, WaitingChunksAreDecodedOnce) {
  SimLoad load = Load(1, RecomputeCapability::kNone, {{kMegabyte, 1000, 1000}, {.9, .5, 0}, 256});
  load.decode_us = {50000};
  int decodes = 0;
  Watcher watcher;
  watcher.decoded = [&](size_t, TimeUs, uint32_t, int) { ++decodes; };
  EXPECT_EQ(Play(Link(), load, watcher).steps, std::vector<int>{2});
  EXPECT_EQ(decodes, 2);  // the base, then all that arrived meanwhile
}

}  // namespace
}  // namespace sluice::sim
