#include "adapt/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "adapt/link_scheduler.h"

namespace sluice::adapt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr TimeUs kSlo = 1000000;
constexpr TimeUs kReserve = 100000;
constexpr uint64_t kHuge = uint64_t{1} << 40;

ChunkLadder Ladder() { return {{100, 200, 400}, {0.9, 0.3, 0.1}, 256}; }

LoadSpec Spec(size_t chunks, RecomputeCapability capability) {
  LoadSpec spec;
  spec.slo_us = kSlo;
  spec.reserve_us = kReserve;
  spec.capability = capability;
  spec.chunks.assign(chunks, Ladder());
  return spec;
}

// A fast link unless told otherwise.
LinkView Link(double bytes_per_s = 1e9) { return {bytes_per_s, bytes_per_s, 1000, false}; }

// One load that has the link to itself.
class Load {
 public:
  explicit Load(LoadSpec spec) : id_(scheduler_.Add(std::move(spec))) {}

  void Happens(const Event& event) { scheduler_.Apply(id_, event, now_); }
  Actions Decide(const LinkView& link, TimeUs now) {
    now_ = now;
    scheduler_.Decide({link, {}}, now);
    return scheduler_.TakeActions(id_);
  }
  int loaded_step(uint32_t chunk) const { return scheduler_.planner(id_)->loaded_step(chunk); }
  uint64_t unanswered_bytes() const { return scheduler_.unanswered_bytes(); }

 private:
  LinkScheduler scheduler_;
  LinkScheduler::LoadId id_;
  TimeUs now_ = 0;
};

MATCHER_P2(GivesUp, chunk, why, "") {
  return arg.chunk == static_cast<uint32_t>(chunk) && arg.why == why;
}
MATCHER_P2(Cancels, chunk, first_step, "") {
  return arg.chunk == static_cast<uint32_t>(chunk) &&
         arg.first_step == static_cast<uint32_t>(first_step);
}

std::vector<uint32_t> AskedChunks(const Actions& actions) {
  std::vector<uint32_t> chunks;
  for (const Ask& ask : actions.asks) chunks.push_back(ask.chunk);
  return chunks;
}

// Answers an ask whole.
void Answer(Load& planner, const Ask& ask) {
  planner.Happens(BytesArrived{ask.chunk, ask.first_step, ask.bytes});
  planner.Happens(StepLoaded{ask.chunk, ask.last_step});
}

void AnswerAll(Load& planner, const Actions& actions) {
  for (const Ask& ask : actions.asks) Answer(planner, ask);
}

TEST(Planner, BasesComeFirstFromTheBack) {
  for (RecomputeCapability capability : {RecomputeCapability::kNone, RecomputeCapability::kAny,
                                         RecomputeCapability::kBidirectional}) {
    Load planner(Spec(3, capability));
    const Actions actions = planner.Decide(Link(5000), 0);  // two asks are always allowed
    EXPECT_THAT(AskedChunks(actions), ElementsAre(2, 1));
    for (const Ask& ask : actions.asks) {
      EXPECT_EQ(ask.ask_class, AskClass::kBase);
      EXPECT_EQ(ask.deadline_us, kSlo);
      EXPECT_EQ(ask.bytes, 100u);
    }
  }
}

TEST(Planner, BasesComeFromTheFrontForASuffix) {
  Load planner(Spec(3, RecomputeCapability::kSuffix));
  EXPECT_THAT(AskedChunks(planner.Decide(Link(5000), 0)), ElementsAre(0, 1));
}

TEST(Planner, RefinementsFollowByLossRemovedPerByte) {
  Load planner(Spec(2, RecomputeCapability::kAny));
  const Actions actions = planner.Decide(Link(), 0);
  std::vector<std::pair<uint32_t, uint32_t>> order;
  for (const Ask& ask : actions.asks) order.emplace_back(ask.chunk, ask.first_step);
  EXPECT_THAT(order, ElementsAre(std::pair(1, 0), std::pair(0, 0), std::pair(1, 1), std::pair(0, 1),
                                 std::pair(1, 2), std::pair(0, 2)));
  EXPECT_EQ(actions.asks[2].deadline_us, kSlo - kReserve);
  AnswerAll(planner, actions);
  const Actions end = planner.Decide(Link(), 1);
  EXPECT_TRUE(end.finished);
  EXPECT_THAT(end.loaded, ElementsAre(0, 1));
}

TEST(Planner, AWeakStepIsAskedTogetherWithTheStrongOneBehindIt) {
  LoadSpec spec = Spec(1, RecomputeCapability::kAny);
  spec.chunks[0] = {{100, 200, 100}, {0.9, 0.85, 0.1}, 256};
  Load planner(spec);
  const Actions actions = planner.Decide(Link(), 0);
  ASSERT_EQ(actions.asks.size(), 2u);
  EXPECT_EQ(actions.asks[1].first_step, 1u);
  EXPECT_EQ(actions.asks[1].last_step, 2u);
  EXPECT_EQ(actions.asks[1].bytes, 300u);
}

TEST(Planner, LossStopEndsRefinement) {
  LoadSpec spec = Spec(1, RecomputeCapability::kAny);
  spec.loss_stop = 0.3;
  Load planner(spec);
  const Actions actions = planner.Decide(Link(), 0);
  EXPECT_EQ(actions.asks.back().last_step, 1u);
  AnswerAll(planner, actions);
  EXPECT_TRUE(planner.Decide(Link(), 1).finished);
}

TEST(Planner, WindowLimitsUnansweredBytes) {
  LoadSpec spec = Spec(30, RecomputeCapability::kAny);
  for (ChunkLadder& ladder : spec.chunks) ladder.step_bytes = {1000000, 1, 1};
  Load planner(spec);
  const LinkView link{100e6, 100e6, 30000, false};  // 5 MB in rtt + 20 ms
  EXPECT_EQ(planner.Decide(link, 0).asks.size(), 5u);
  EXPECT_EQ(planner.unanswered_bytes(), 5000000u);
  planner.Happens(BytesArrived{29, 0, 600000});
  EXPECT_THAT(planner.Decide(link, 1).asks, IsEmpty());
  planner.Happens(BytesArrived{29, 0, 400000});
  EXPECT_EQ(planner.Decide(link, 2).asks.size(), 1u);
}

TEST(Planner, AnUnknownLinkGetsBasesAlone) {
  Load planner(Spec(3, RecomputeCapability::kNone));
  const Actions actions = planner.Decide(Link(0), 0);
  EXPECT_THAT(AskedChunks(actions), ElementsAre(2, 1, 0));
  AnswerAll(planner, actions);
  EXPECT_EQ(planner.Decide(Link(0), 1).asks.size(), LinkScheduler::kMinAsksInFlight);
}

TEST(Planner, AsksInFlightAreLimited) {
  Load planner(Spec(100, RecomputeCapability::kAny));
  EXPECT_EQ(planner.Decide(Link(), 0).asks.size(), LoadPlanner::kMaxAsksInFlight);
}

TEST(Planner, NothingIsAskedFromTheLastMomentOn) {
  Load planner(Spec(3, RecomputeCapability::kNone));
  EXPECT_EQ(planner.Decide(Link(5000), 0).asks.size(), 2u);
  planner.Happens(BytesArrived{2, 0, 100});
  const Actions late = planner.Decide(Link(), kSlo - kReserve);
  EXPECT_THAT(late.asks, IsEmpty());
  EXPECT_THAT(late.give_ups, ElementsAre(GivesUp(0, GiveUpReason::kLate)));
  EXPECT_FALSE(late.finished);  // bases that are on their way may still arrive
  planner.Happens(StepLoaded{2, 0});
  EXPECT_THAT(planner.Decide(Link(), kSlo - 1).loaded, ElementsAre(2));
  const Actions end = planner.Decide(Link(), kSlo);
  EXPECT_THAT(end.give_ups, ElementsAre(GivesUp(1, GiveUpReason::kLate)));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, RefinementsAreDroppedAtTheLastMoment) {
  Load planner(Spec(1, RecomputeCapability::kAny));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);
  // Step 1 has arrived but is not decoded, step 2 has not arrived: neither is waited for.
  planner.Happens(BytesArrived{0, 1, 200});
  const Actions last = planner.Decide(Link(), kSlo - kReserve);
  EXPECT_THAT(last.cancels, ElementsAre(Cancels(0, 2)));
  EXPECT_TRUE(last.finished);
  EXPECT_THAT(last.loaded, ElementsAre(0));
  EXPECT_EQ(planner.loaded_step(0), 0);
}

TEST(Planner, WakesForTheLastMoment) {
  LinkScheduler scheduler;
  EXPECT_EQ(scheduler.WakeUs(5), 5 + LoadPlanner::kTickUs);
  scheduler.Add(Spec(1, RecomputeCapability::kAny));
  scheduler.Decide({Link(), {}}, kSlo - kReserve - 3000);
  EXPECT_EQ(scheduler.WakeUs(kSlo - kReserve - 3000), kSlo - kReserve);
}

TEST(Planner, ALoadIsDemotedOnlyWhileItIsHopeless) {
  LinkScheduler scheduler;
  const LinkScheduler::LoadId first = scheduler.Add(Spec(8, RecomputeCapability::kNone));
  const LinkScheduler::LoadId second = scheduler.Add(Spec(8, RecomputeCapability::kNone));
  scheduler.Decide({Link(1500), {}}, 0);  // enough for one of them
  EXPECT_FALSE(scheduler.planner(first)->demoted());
  EXPECT_TRUE(scheduler.planner(second)->demoted());
  scheduler.Decide({Link(3000), {}}, 1);
  EXPECT_FALSE(scheduler.planner(second)->demoted());
  scheduler.Decide({Link(1500), {}}, 2);
  EXPECT_TRUE(scheduler.planner(second)->demoted());
  scheduler.Remove(first);
  scheduler.Decide({Link(500), {}}, 3);
  EXPECT_FALSE(scheduler.planner(second)->demoted());  // there is no one to delay
}

TEST(Planner, StallCancelsRefinementsButNotBases) {
  Load planner(Spec(2, RecomputeCapability::kNone));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);
  LinkView stalled = Link(1000);
  stalled.stalled = true;
  const Actions actions = planner.Decide(stalled, 1000);
  EXPECT_THAT(actions.cancels, testing::UnorderedElementsAre(Cancels(0, 1), Cancels(1, 1)));
  EXPECT_THAT(actions.asks, IsEmpty());
  EXPECT_EQ(planner.unanswered_bytes(), 100u);
  Answer(planner, first.asks[1]);
  EXPECT_THAT(AskedChunks(planner.Decide(Link(), 2000)), ElementsAre(1, 0, 1, 0));
}

TEST(Planner, WhatAnotherLoadFetchesTakesNoRoomOnTheLink) {
  Load planner(Spec(1, RecomputeCapability::kNone));
  planner.Decide(Link(), 0);  // the base and all refinements
  EXPECT_EQ(planner.unanswered_bytes(), 700u);
  planner.Happens(AskShared{0, 0, true});
  EXPECT_EQ(planner.unanswered_bytes(), 600u);
  planner.Happens(BytesArrived{0, 0, 40});
  EXPECT_EQ(planner.unanswered_bytes(), 600u);
  planner.Happens(AskShared{0, 0, false});  // the other load is gone
  EXPECT_EQ(planner.unanswered_bytes(), 660u);
}

TEST(Planner, RefinementsWaitWhileDecodingIsBehind) {
  const uint32_t count = LoadPlanner::kMaxUndecoded + 1;
  Load planner(Spec(count, RecomputeCapability::kAny));
  const LinkView narrow = Link(900 / 0.021);  // room for the bases alone
  for (const Ask& ask : planner.Decide(narrow, 0).asks)
    planner.Happens(BytesArrived{ask.chunk, 0, ask.bytes});
  EXPECT_THAT(planner.Decide(Link(), 1).asks, IsEmpty());
  planner.Happens(StepLoaded{0, 0});
  EXPECT_FALSE(planner.Decide(Link(), 2).asks.empty());
}

TEST(Planner, WhatWouldNotBeDecodedInTimeIsNotAskedFor) {
  for (const TimeUs decode_us : {100000, 600000}) {  // of 900000
    LoadSpec spec = Spec(2, RecomputeCapability::kNone);
    spec.decode_us = {1000, decode_us};
    Load planner(std::move(spec));
    AnswerAll(planner, planner.Decide(Link(200 / 0.021), 0));  // the bases
    const size_t asks = planner.Decide(Link(), 1).asks.size();
    EXPECT_EQ(asks, decode_us == 100000 ? 4 : 1);
  }
}

TEST(Planner, SuffixIsCutAtTheFirstChunkThatIsNotStored) {
  LoadSpec spec = Spec(4, RecomputeCapability::kSuffix);
  spec.chunks[2] = {};
  Load planner(spec);
  const Actions actions = planner.Decide(Link(), 0);
  EXPECT_THAT(actions.give_ups, ElementsAre(GivesUp(2, GiveUpReason::kNotStored),
                                            GivesUp(3, GiveUpReason::kAfterCut)));
  for (const Ask& ask : actions.asks) EXPECT_LT(ask.chunk, 2u);
}

TEST(Planner, LoadedChunksBehindTheCutAreGivenUp) {
  Load planner(Spec(3, RecomputeCapability::kSuffix));
  const Actions first = planner.Decide(Link(), 0);
  for (const Ask& ask : first.asks) {
    if (ask.chunk != 1) Answer(planner, ask);
  }
  const Actions middle = planner.Decide(Link(), 10);
  EXPECT_THAT(middle.loaded, ElementsAre(0));  // 2 is complete, but 1 may still cut it off
  const Actions end = planner.Decide(Link(), kSlo);
  EXPECT_THAT(end.give_ups,
              ElementsAre(GivesUp(1, GiveUpReason::kLate), GivesUp(2, GiveUpReason::kAfterCut)));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, OtherCapabilitiesLoadAroundAMissingChunk) {
  for (RecomputeCapability capability : {RecomputeCapability::kNone, RecomputeCapability::kAny}) {
    LoadSpec spec = Spec(3, capability);
    spec.chunks[1] = {};
    Load planner(spec);
    const Actions actions = planner.Decide(Link(), 0);
    EXPECT_THAT(actions.give_ups, ElementsAre(GivesUp(1, GiveUpReason::kNotStored)));
    AnswerAll(planner, actions);
    const Actions end = planner.Decide(Link(), 1);
    EXPECT_THAT(end.loaded, ElementsAre(0, 2));
    EXPECT_TRUE(end.finished);
  }
}

TEST(Planner, ComputedPrefixIsNotLoaded) {
  Load planner(Spec(3, RecomputeCapability::kBidirectional));
  const Actions first = planner.Decide(Link(5000), 0);
  Answer(planner, first.asks[1]);  // chunk 1
  planner.Happens(ChunksComputed{2});
  const Actions actions = planner.Decide(Link(5000), 10);
  EXPECT_THAT(actions.give_ups, ElementsAre(GivesUp(0, GiveUpReason::kComputed),
                                            GivesUp(1, GiveUpReason::kComputed)));
  planner.Happens(ChunksComputed{3});
  const Actions end = planner.Decide(Link(5000), 20);
  EXPECT_THAT(end.give_ups, ElementsAre(GivesUp(2, GiveUpReason::kComputed)));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, AFailedBaseIsAskedOnceMore) {
  Load planner(Spec(1, RecomputeCapability::kAny));
  planner.Decide(Link(), 0);
  planner.Happens(StepFailed{0, 0, true});
  const Actions again = planner.Decide(Link(), 1);
  ASSERT_FALSE(again.asks.empty());
  EXPECT_EQ(again.asks[0].first_step, 0u);
  EXPECT_EQ(again.asks[0].reason, "its base failed once");
  planner.Happens(StepFailed{0, 0, true});
  const Actions end = planner.Decide(Link(), 2);
  EXPECT_THAT(end.give_ups, ElementsAre(GivesUp(0, GiveUpReason::kFailed)));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, ABaseThatCannotComeIsNotAskedAgain) {
  Load planner(Spec(1, RecomputeCapability::kAny));
  planner.Decide(Link(), 0);
  planner.Happens(StepFailed{0, 0, false});
  EXPECT_TRUE(planner.Decide(Link(), 1).finished);
}

TEST(Planner, AFailedRefinementLeavesTheLoadedStep) {
  Load planner(Spec(1, RecomputeCapability::kAny));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);
  planner.Happens(StepFailed{0, 1, true});
  const Actions end = planner.Decide(Link(), 1);
  EXPECT_THAT(end.asks, IsEmpty());
  EXPECT_THAT(end.loaded, ElementsAre(0));
  EXPECT_EQ(planner.loaded_step(0), 0);
}

TEST(Planner, ALostLinkEndsTheLoadEarly) {
  Load planner(Spec(3, RecomputeCapability::kNone));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);            // 2 is loaded
  planner.Happens(BytesArrived{1, 0, 100});  // 1 has arrived and waits for its decode
  planner.Happens(LinkLost{false});
  const Actions lost = planner.Decide(Link(), 10);
  EXPECT_THAT(lost.give_ups, ElementsAre(GivesUp(0, GiveUpReason::kFailed)));
  EXPECT_THAT(lost.loaded, ElementsAre(2));
  EXPECT_FALSE(lost.finished);
  planner.Happens(StepLoaded{1, 0});
  const Actions end = planner.Decide(Link(), 20);
  EXPECT_THAT(end.loaded, ElementsAre(1));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, ABaseThatIsDamagedOnALostLinkIsGivenUpAtOnce) {
  Load planner(Spec(1, RecomputeCapability::kAny));
  planner.Decide(Link(), 0);
  planner.Happens(BytesArrived{0, 0, 100});
  planner.Happens(LinkLost{false});
  EXPECT_FALSE(planner.Decide(Link(), 10).finished);
  planner.Happens(StepFailed{0, 0, true});
  const Actions end = planner.Decide(Link(), 20);
  EXPECT_THAT(end.give_ups, ElementsAre(GivesUp(0, GiveUpReason::kFailed)));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, MissingPiecesAreAskedAgainWhenTheLinkIsBack) {
  Load planner(Spec(2, RecomputeCapability::kNone));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);
  planner.Happens(BytesArrived{0, 0, 50});
  planner.Happens(LinkLost{true});
  const Actions waiting = planner.Decide(Link(), 10);
  EXPECT_THAT(waiting.asks, IsEmpty());
  EXPECT_FALSE(waiting.finished);
  planner.Happens(LinkRestored{});
  const Actions again = planner.Decide(Link(), 20);
  EXPECT_THAT(AskedChunks(again), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_EQ(again.asks[0].bytes, 100u);
  AnswerAll(planner, again);
  EXPECT_TRUE(planner.Decide(Link(), 30).finished);
}

TEST(Planner, MemoryIsNotExceededAndChunksAreFinishedOneByOne) {
  LoadSpec spec = Spec(6, RecomputeCapability::kAny);
  spec.memory_bytes = 1500;  // six whole chunks need 4200
  Load planner(spec);
  std::vector<uint64_t> held(6, 0);
  Actions actions;
  for (TimeUs now = 0; !actions.finished; now += 1000) {
    ASSERT_LT(now, kSlo);
    actions = planner.Decide(Link(), now);
    for (const Close& close : actions.closes) held[close.chunk] = 0;
    for (const Ask& ask : actions.asks) held[ask.chunk] += ask.bytes;
    uint64_t total = 0;
    for (uint64_t bytes : held) total += bytes;
    EXPECT_LE(total, spec.memory_bytes);
    AnswerAll(planner, actions);
  }
  int best = 0;
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_GE(planner.loaded_step(i), 0);
    best += planner.loaded_step(i) == 2;
  }
  EXPECT_GE(best, 4);
}

TEST(Planner, AChunkLargerThanTheMemoryIsGivenUp) {
  LoadSpec spec = Spec(2, RecomputeCapability::kAny);
  spec.memory_bytes = 1000;
  spec.chunks[1].step_bytes[0] = 1001;
  Load planner(spec);
  EXPECT_THAT(planner.Decide(Link(), 0).give_ups, ElementsAre(GivesUp(1, GiveUpReason::kTooLarge)));
}

TEST(Planner, DegenerateLoadsAreFinalAtOnce) {
  Load empty(Spec(0, RecomputeCapability::kAny));
  EXPECT_TRUE(empty.Decide(Link(), 0).finished);

  LoadSpec spec = Spec(2, RecomputeCapability::kAny);
  spec.slo_us = 0;
  spec.chunks[0] = {};
  Load no_time(spec);
  const Actions actions = no_time.Decide(Link(), 0);
  EXPECT_THAT(actions.give_ups,
              ElementsAre(GivesUp(0, GiveUpReason::kNotStored), GivesUp(1, GiveUpReason::kLate)));
  EXPECT_TRUE(actions.finished);

  LoadSpec stored_nowhere = Spec(3, RecomputeCapability::kSuffix);
  for (ChunkLadder& ladder : stored_nowhere.chunks) ladder = {};
  Load nothing(stored_nowhere);
  EXPECT_TRUE(nothing.Decide(Link(), 0).finished);
}

TEST(Planner, EventsThatMakeNoSenseAreIgnored) {
  Load planner(Spec(1, RecomputeCapability::kAny));
  planner.Happens(StepLoaded{0, 2});  // never asked for
  planner.Happens(StepLoaded{7, 0});
  planner.Happens(StepFailed{7, 0, true});
  planner.Happens(BytesArrived{7, 0, kHuge});
  planner.Happens(ChunksComputed{7});
  EXPECT_EQ(planner.loaded_step(0), -1);
  EXPECT_EQ(planner.loaded_step(7), -1);
  EXPECT_TRUE(planner.Decide(Link(), 0).finished);  // computed
  planner.Happens(StepLoaded{0, 0});
  EXPECT_EQ(planner.loaded_step(0), -1);
  EXPECT_TRUE(planner.Decide(Link(), 1).give_ups.empty());
}

}  // namespace
}  // namespace sluice::adapt
