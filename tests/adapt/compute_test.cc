// What the planner leaves to the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "adapt/link_scheduler.h"

namespace sluice::adapt {
namespace {

constexpr TimeUs kSlo = 1000000;
constexpr TimeUs kReserve = 50000;
// Engines that compute after the load what it did not bring.
constexpr RecomputeCapability kAfterwards[] = {RecomputeCapability::kSuffix,
                                               RecomputeCapability::kAny};

LoadSpec Spec(size_t chunks, RecomputeCapability capability, TimeUs compute_us) {
  LoadSpec spec;
  spec.slo_us = kSlo;
  spec.reserve_us = kReserve;
  spec.capability = capability;
  spec.loss_stop = 0.1;
  spec.chunks.assign(chunks, ChunkLadder{{100, 200, 400}, {0.9, 0.3, 0.1}, 256});
  spec.compute_us.assign(chunks, compute_us);
  return spec;
}

// One load with the link to itself; the link answers every ask after its time on the wire.
class TimedLoad {
 public:
  TimedLoad(LoadSpec spec, double bytes_per_s)
      : rate_(bytes_per_s), num_chunks_(spec.chunks.size()), id_(scheduler_.Add(std::move(spec))) {}

  // Lets time pass until `end_us` or the end of the load.
  void Until(TimeUs end_us) {
    for (; now_ < end_us && !finished_; now_ += 1000) {
      Deliver();
      LinkView view{pessimism_ * rate_, rate_, 1000, rate_ <= 0, idle_us_};
      if (!known_) view = {};
      scheduler_.Decide({view, {scale_, high_scale_}}, now_);
      const Actions actions = scheduler_.TakeActions(id_);
      for (const Ask& ask : actions.asks) asks_.push_back(ask);
      for (const Cancel& cancel : actions.cancels) {
        std::erase_if(asks_, [&](const Ask& ask) {
          return ask.chunk == cancel.chunk && ask.first_step >= cancel.first_step;
        });
      }
      for (const GiveUp& give_up : actions.give_ups) give_ups_.push_back(give_up);
      for (uint32_t chunk : actions.loaded) loaded_.push_back(chunk);
      if (actions.compute.has_value()) computes_.push_back(actions.compute->chunk);
      finished_ = actions.finished;
    }
  }
  void Computed(uint32_t chunks) { scheduler_.Apply(id_, ChunksComputed{chunks}, now_); }
  int step(uint32_t chunk) const { return scheduler_.planner(id_)->loaded_step(chunk); }
  size_t count(GiveUpReason why) const {
    size_t count = 0;
    for (const GiveUp& give_up : give_ups_) count += give_up.why == why;
    return count;
  }

  double rate_;
  double pessimism_ = 1;
  TimeUs idle_us_ = 0;
  int lost_chunk_ = -1;  // answers for it never come
  double scale_ = 1;
  double high_scale_ = 1;
  bool known_ = true;
  bool finished_ = false;
  TimeUs now_ = 0;
  std::vector<GiveUp> give_ups_;
  std::vector<uint32_t> loaded_, computes_;

 private:
  void Deliver() {
    credit_ = asks_.empty() ? 0 : credit_ + rate_ * 1e-3;
    while (!asks_.empty() && credit_ >= static_cast<double>(asks_.front().bytes)) {
      const Ask ask = asks_.front();
      asks_.erase(asks_.begin());
      credit_ -= static_cast<double>(ask.bytes);
      if (static_cast<int>(ask.chunk) == lost_chunk_) continue;
      scheduler_.Apply(id_, BytesArrived{ask.chunk, ask.first_step, ask.bytes}, now_);
      scheduler_.Apply(id_, StepLoaded{ask.chunk, ask.last_step}, now_);
    }
  }

  size_t num_chunks_;
  LinkScheduler scheduler_;
  LinkScheduler::LoadId id_;
  std::vector<Ask> asks_;
  double credit_ = 0;
};

TEST(PlannerCompute, AFastLinkNeedsNoEngine) {
  TimedLoad run(Spec(10, RecomputeCapability::kBidirectional, 50000), 20000);  // 7000 bytes: .35 s
  run.Until(kSlo);
  EXPECT_TRUE(run.finished_);
  EXPECT_EQ(run.loaded_.size(), 10u);
  EXPECT_TRUE(run.computes_.empty());
  EXPECT_EQ(run.step(0), 2);
}

TEST(PlannerCompute, ASlowLinkAndTheEngineMeet) {
  TimedLoad run(Spec(10, RecomputeCapability::kBidirectional, 100000), 1000);  // bases alone: 1 s
  for (uint32_t done = 0; !run.finished_ && run.now_ < kSlo; ++done) {
    run.Until(run.now_ + 100000);
    ASSERT_EQ(run.computes_.size(), run.finished_ ? done : done + 1);
    run.Computed(done + 1);
  }
  EXPECT_TRUE(run.finished_);
  const size_t computed = run.count(GiveUpReason::kComputed);
  EXPECT_EQ(run.loaded_.size() + computed, 10u);
  EXPECT_GE(computed, 5u);  // they met in the middle; then the engine went on beside refinement
}

TEST(PlannerCompute, AnUnknownLinkKeepsTheEngineComputing) {
  TimedLoad run(Spec(4, RecomputeCapability::kBidirectional, 100000), 1e6);
  run.known_ = false;
  run.Until(1000);
  EXPECT_THAT(run.computes_, testing::ElementsAre(0));
}

TEST(PlannerCompute, WhatIsNotStoredIsLeftToTheEngineAndItsTimeIsKept) {
  LoadSpec spec = Spec(4, RecomputeCapability::kSuffix, 200000);
  spec.chunks[2] = {};
  spec.loss_stop = 0.9;
  TimedLoad run(std::move(spec), 1000);
  run.Until(kSlo);
  EXPECT_EQ(run.count(GiveUpReason::kNotStored), 1u);
  EXPECT_EQ(run.count(GiveUpReason::kAfterCut), 1u);
  EXPECT_EQ(run.loaded_.size(), 2u);
  EXPECT_LE(run.now_, kSlo - kReserve - 400000 + 2000);
}

TEST(PlannerCompute, ASlowLinkIsDeclinedAtOnce) {
  for (const RecomputeCapability capability : kAfterwards) {
    TimedLoad run(Spec(10, capability, 10000), 5000);  // .2 s against .1 s
    run.Until(2000);
    EXPECT_TRUE(run.finished_);
    EXPECT_EQ(run.count(GiveUpReason::kComputeFaster), 10u);
  }
}

TEST(PlannerCompute, SlowDecodingIsAReasonToComputeAsASlowLinkIs) {
  LoadSpec spec = Spec(10, RecomputeCapability::kSuffix, 10000);
  spec.decode_us = {20000};
  TimedLoad declined(spec, 1e6);
  declined.Until(2000);
  EXPECT_EQ(declined.count(GiveUpReason::kComputeFaster), 10u);

  spec = Spec(10, RecomputeCapability::kBidirectional, 50000);
  spec.decode_us = {100000};  // the last is decoded after the SLO
  TimedLoad helped(spec, 1e6);
  helped.Until(1000);
  EXPECT_THAT(helped.computes_, testing::ElementsAre(0));
}

TEST(PlannerCompute, AnOldEstimateDeclinesNothing) {
  TimedLoad run(Spec(10, RecomputeCapability::kSuffix, 10000), 5000);
  run.idle_us_ = LoadPlanner::kMaxEstimateAgeUs + 1;
  run.Until(2000);
  EXPECT_TRUE(run.give_ups_.empty());
}

TEST(PlannerCompute, TheRestIsComputedAtTheLastMomentThatMeetsTheSlo) {
  for (const RecomputeCapability capability : kAfterwards) {
    TimedLoad run(Spec(10, capability, 50000), 10000);
    run.Until(40000);  // some bases are there
    run.rate_ = 1;     // and no more will come
    run.Until(kSlo);
    ASSERT_TRUE(run.finished_);
    ASSERT_FALSE(run.loaded_.empty());
    const TimeUs rest_us = 50000 * static_cast<TimeUs>(run.count(GiveUpReason::kComputeFaster));
    EXPECT_EQ(run.loaded_.size() + run.count(GiveUpReason::kComputeFaster), 10u);
    EXPECT_LE(run.now_ + rest_us, kSlo - kReserve + 2000);
    EXPECT_GE(run.now_ + rest_us, kSlo - kReserve - LoadPlanner::kTickUs - 2000);
  }
}

TEST(PlannerCompute, AnEngineThatComputesAnyChunkIsLeftTheCheapOnes) {
  LoadSpec spec = Spec(10, RecomputeCapability::kAny, 0);
  for (TimeUs i = 0; i < 10; ++i) spec.compute_us[i] = 20000 * (i + 1);  // 1.1 s in all
  TimedLoad run(spec, 800);                                              // 1.25 s for the bases
  run.Until(kSlo);
  ASSERT_TRUE(run.finished_);
  ASSERT_EQ(run.loaded_.size() + run.count(GiveUpReason::kComputeFaster), 10u);
  TimeUs rest_us = 0;
  for (const GiveUp& give_up : run.give_ups_) {
    rest_us += spec.compute_us[give_up.chunk];
    for (const uint32_t chunk : run.loaded_) EXPECT_GT(chunk, give_up.chunk);
  }
  EXPECT_LE(run.now_ + rest_us, kSlo - kReserve + 2000);
}

TEST(PlannerCompute, WhatIsLoadedBesideAGapIsKept) {
  TimedLoad run(Spec(10, RecomputeCapability::kAny, 50000), 10000);
  run.lost_chunk_ = 8;
  run.Until(50000);
  run.rate_ = 1;
  run.Until(kSlo);
  EXPECT_THAT(run.loaded_, testing::IsSupersetOf({9u, 7u}));
  EXPECT_EQ(run.loaded_.size() + run.give_ups_.size(), 10u);
}

TEST(PlannerCompute, AGapIsNoCutForAnEngineThatComputesAnyChunk) {
  LoadSpec spec = Spec(4, RecomputeCapability::kAny, 200000);
  spec.chunks[2] = {};
  spec.loss_stop = 0.9;
  TimedLoad run(std::move(spec), 1000);
  run.Until(kSlo);
  EXPECT_THAT(run.loaded_, testing::UnorderedElementsAre(0, 1, 3));
  EXPECT_LE(run.now_, kSlo - kReserve - 200000 + 2000);
}

TEST(PlannerCompute, WhenTheSloIsMissedTheFasterIsDone) {
  for (const RecomputeCapability capability : kAfterwards) {
    LoadSpec spec = Spec(10, capability, 150000);
    spec.limit_us = 10 * kSlo;
    TimedLoad slow(spec, 250);  // .24 of the bases within the SLO; computing: 1.2 s, loading: 3 s
    slow.Until(kSlo - kReserve - 1000);
    EXPECT_TRUE(slow.give_ups_.empty());  // the link may become faster, the engine is late anyway
    slow.Until(kSlo);
    EXPECT_TRUE(slow.finished_);
    EXPECT_GE(slow.count(GiveUpReason::kComputeFaster), 7u);
    TimedLoad faster(spec, 800);  // 1.25 s
    faster.Until(10 * kSlo);
    EXPECT_EQ(faster.loaded_.size(), 10u);
  }
}

TEST(PlannerCompute, WhatTheEngineMayNotKeepIsNotLeftToIt) {
  for (const RecomputeCapability capability : kAfterwards) {
    TimedLoad run(Spec(10, capability, 50000), 6000);
    run.high_scale_ = 20;  // it is often shared
    run.Until(kSlo);
    EXPECT_EQ(run.loaded_.size(), 10u);
  }
}

TEST(PlannerCompute, TheCutMovesForQuality) {
  // The bases of all come in .4 s, but then most would stay bases; computing half takes .25 s and
  // leaves time to refine the other half.
  for (const RecomputeCapability capability : kAfterwards) {
    TimedLoad run(Spec(10, capability, 50000), 6000);
    run.Until(kSlo);
    ASSERT_TRUE(run.finished_);
    EXPECT_GE(run.count(GiveUpReason::kComputeFaster), 1u);
    for (uint32_t chunk : run.loaded_) {
      EXPECT_EQ(run.step(chunk), 2) << chunk;
      for (const GiveUp& give_up : run.give_ups_) {
        EXPECT_EQ(chunk < give_up.chunk, capability == RecomputeCapability::kSuffix);
      }
    }
  }
}

TEST(PlannerCompute, WhatTheLinkMakesGoodInTimeIsNotComputed) {
  for (const RecomputeCapability capability : kAfterwards) {
    TimedLoad run(Spec(10, capability, 50000), 8000);  // 7000 bytes: .88 s of .95 s
    run.pessimism_ = 0.7;
    run.Until(kSlo);
    EXPECT_TRUE(run.give_ups_.empty());
    for (uint32_t chunk : run.loaded_) EXPECT_EQ(run.step(chunk), 2) << chunk;
  }
}

TEST(PlannerCompute, ACutThatMovesPartsWhatIsLoaded) {
  // Refinement begins at the back, so the last chunks are the first to be good; then the link slows
  // down and the cut moves past loaded chunks, for a suffix past good ones.
  for (const RecomputeCapability capability : kAfterwards) {
    TimedLoad run(Spec(10, capability, 100000), 10000);
    run.Until(350000);
    ASSERT_EQ(run.step(9), 2);
    ASSERT_EQ(run.step(0), 1);
    run.rate_ = 1000;
    run.Until(kSlo);
    ASSERT_TRUE(run.finished_);
    EXPECT_GE(run.count(GiveUpReason::kComputeFaster), 1u);
    for (const GiveUp& give_up : run.give_ups_) {
      for (const uint32_t chunk : run.loaded_) {
        EXPECT_EQ(chunk < give_up.chunk, capability == RecomputeCapability::kSuffix);
      }
    }
  }
}

TEST(PlannerCompute, LoadsOfALinkMayHaveDifferentEngines) {
  std::map<LinkScheduler::LoadId, double> scales;
  LinkScheduler scheduler(
      [&](LinkScheduler::LoadId id, TimeUs, const Event& event, const Actions&) {
        if (const Tick* tick = std::get_if<Tick>(&event)) scales[id] = tick->pace.scale;
      });
  const auto first = scheduler.Add(Spec(2, RecomputeCapability::kBidirectional, 50000));
  const auto second = scheduler.Add(Spec(2, RecomputeCapability::kBidirectional, 50000));
  scheduler.SetPace(second, {3, 4});
  scheduler.Decide({}, 0);
  EXPECT_EQ(scales[first], 1);
  EXPECT_EQ(scales[second], 3);
}

TEST(PlannerCompute, ASlowerEngineIsForeseen) {
  LoadSpec spec = Spec(10, RecomputeCapability::kSuffix, 10000);
  spec.loss_stop = 0.9;
  TimedLoad run(std::move(spec), 5000);
  run.scale_ = 5;  // .5 s instead of .1 s: loading is faster
  run.Until(2000);
  EXPECT_FALSE(run.finished_);
}

}  // namespace
}  // namespace sluice::adapt
