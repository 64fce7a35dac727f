#include "adapt/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

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
LinkView Link(double bytes_per_s = 1e9) { return {bytes_per_s, 1000, false}; }

std::vector<uint32_t> AskedChunks(const Actions& actions) {
  std::vector<uint32_t> chunks;
  for (const Ask& ask : actions.asks) chunks.push_back(ask.chunk);
  return chunks;
}

// Answers an ask whole.
void Answer(LoadPlanner& planner, const Ask& ask) {
  planner.OnBytes(ask.chunk, ask.first_step, ask.bytes);
  planner.OnStepLoaded(ask.chunk, ask.last_step);
}

void AnswerAll(LoadPlanner& planner, const Actions& actions) {
  for (const Ask& ask : actions.asks) Answer(planner, ask);
}

TEST(Planner, BasesComeFirstFromTheBack) {
  for (RecomputeCapability capability : {RecomputeCapability::kNone, RecomputeCapability::kAny,
                                         RecomputeCapability::kBidirectional}) {
    LoadPlanner planner(Spec(3, capability));
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
  LoadPlanner planner(Spec(3, RecomputeCapability::kSuffix));
  EXPECT_THAT(AskedChunks(planner.Decide(Link(5000), 0)), ElementsAre(0, 1));
}

TEST(Planner, RefinementsFollowByLossRemovedPerByte) {
  LoadPlanner planner(Spec(2, RecomputeCapability::kAny));
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
  LoadPlanner planner(spec);
  const Actions actions = planner.Decide(Link(), 0);
  ASSERT_EQ(actions.asks.size(), 2u);
  EXPECT_EQ(actions.asks[1].first_step, 1u);
  EXPECT_EQ(actions.asks[1].last_step, 2u);
  EXPECT_EQ(actions.asks[1].bytes, 300u);
}

TEST(Planner, LossStopEndsRefinement) {
  LoadSpec spec = Spec(1, RecomputeCapability::kAny);
  spec.loss_stop = 0.3;
  LoadPlanner planner(spec);
  const Actions actions = planner.Decide(Link(), 0);
  EXPECT_EQ(actions.asks.back().last_step, 1u);
  AnswerAll(planner, actions);
  EXPECT_TRUE(planner.Decide(Link(), 1).finished);
}

TEST(Planner, WindowLimitsUnansweredBytes) {
  LoadSpec spec = Spec(30, RecomputeCapability::kAny);
  for (ChunkLadder& ladder : spec.chunks) ladder.step_bytes = {1000000, 1, 1};
  LoadPlanner planner(spec);
  const LinkView link{100e6, 30000, false};  // 5 MB in rtt + 20 ms
  EXPECT_EQ(planner.Decide(link, 0).asks.size(), 5u);
  EXPECT_EQ(planner.unanswered_bytes(), 5000000u);
  planner.OnBytes(29, 0, 600000);
  EXPECT_THAT(planner.Decide(link, 1).asks, IsEmpty());
  planner.OnBytes(29, 0, 400000);
  EXPECT_EQ(planner.Decide(link, 2).asks.size(), 1u);
}

TEST(Planner, AsksInFlightAreLimited) {
  LoadPlanner planner(Spec(100, RecomputeCapability::kAny));
  EXPECT_EQ(planner.Decide(Link(), 0).asks.size(), LoadPlanner::kMaxAsksInFlight);
}

TEST(Planner, NothingIsAskedFromTheLastMomentOn) {
  LoadPlanner planner(Spec(3, RecomputeCapability::kAny));
  EXPECT_EQ(planner.Decide(Link(5000), 0).asks.size(), 2u);
  planner.OnBytes(2, 0, 100);
  const Actions late = planner.Decide(Link(), kSlo - kReserve);
  EXPECT_THAT(late.asks, IsEmpty());
  EXPECT_THAT(late.give_ups, ElementsAre(GiveUp{0, GiveUpReason::kLate}));
  EXPECT_FALSE(late.finished);  // bases that are on their way may still arrive
  planner.OnStepLoaded(2, 0);
  EXPECT_THAT(planner.Decide(Link(), kSlo - 1).loaded, ElementsAre(2));
  const Actions end = planner.Decide(Link(), kSlo);
  EXPECT_THAT(end.give_ups, ElementsAre(GiveUp{1, GiveUpReason::kLate}));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, RefinementsOnTheirWayAreCancelledAtTheLastMoment) {
  LoadPlanner planner(Spec(1, RecomputeCapability::kAny));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);
  planner.OnBytes(0, 1, 200);  // step 1 has arrived but is not decoded, step 2 has not arrived
  const Actions last = planner.Decide(Link(), kSlo - kReserve);
  EXPECT_THAT(last.cancels, ElementsAre(Cancel{0, 2}));
  EXPECT_FALSE(last.finished);
  planner.OnStepLoaded(0, 1);
  const Actions end = planner.Decide(Link(), kSlo - 1);
  EXPECT_TRUE(end.finished);
  EXPECT_THAT(end.loaded, ElementsAre(0));
  EXPECT_EQ(planner.loaded_step(0), 1);
}

TEST(Planner, StallCancelsRefinementsButNotBases) {
  LoadPlanner planner(Spec(2, RecomputeCapability::kAny));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);
  LinkView stalled = Link(1000);
  stalled.stalled = true;
  const Actions actions = planner.Decide(stalled, 1000);
  EXPECT_THAT(actions.cancels, testing::UnorderedElementsAre(Cancel{0, 1}, Cancel{1, 1}));
  EXPECT_THAT(actions.asks, IsEmpty());
  EXPECT_EQ(planner.unanswered_bytes(), 100u);
  Answer(planner, first.asks[1]);
  EXPECT_THAT(AskedChunks(planner.Decide(Link(), 2000)), ElementsAre(1, 0, 1, 0));
}

TEST(Planner, RefinementsWaitWhileDecodingIsBehind) {
  const uint32_t count = LoadPlanner::kMaxUndecoded + 1;
  LoadPlanner planner(Spec(count, RecomputeCapability::kAny));
  const LinkView narrow = Link(900 / 0.021);  // room for the bases alone
  for (const Ask& ask : planner.Decide(narrow, 0).asks) planner.OnBytes(ask.chunk, 0, ask.bytes);
  EXPECT_THAT(planner.Decide(Link(), 1).asks, IsEmpty());
  planner.OnStepLoaded(0, 0);
  EXPECT_FALSE(planner.Decide(Link(), 2).asks.empty());
}

TEST(Planner, SuffixIsCutAtTheFirstChunkThatIsNotStored) {
  LoadSpec spec = Spec(4, RecomputeCapability::kSuffix);
  spec.chunks[2] = {};
  LoadPlanner planner(spec);
  const Actions actions = planner.Decide(Link(), 0);
  EXPECT_THAT(actions.give_ups,
              ElementsAre(GiveUp{2, GiveUpReason::kNotStored}, GiveUp{3, GiveUpReason::kAfterCut}));
  for (const Ask& ask : actions.asks) EXPECT_LT(ask.chunk, 2u);
}

TEST(Planner, LoadedChunksBehindTheCutAreGivenUp) {
  LoadPlanner planner(Spec(3, RecomputeCapability::kSuffix));
  const Actions first = planner.Decide(Link(), 0);
  for (const Ask& ask : first.asks) {
    if (ask.chunk != 1) Answer(planner, ask);
  }
  const Actions middle = planner.Decide(Link(), 10);
  EXPECT_THAT(middle.loaded, ElementsAre(0));  // 2 is complete, but 1 may still cut it off
  const Actions end = planner.Decide(Link(), kSlo);
  EXPECT_THAT(end.give_ups,
              ElementsAre(GiveUp{1, GiveUpReason::kLate}, GiveUp{2, GiveUpReason::kAfterCut}));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, OtherCapabilitiesLoadAroundAMissingChunk) {
  for (RecomputeCapability capability : {RecomputeCapability::kNone, RecomputeCapability::kAny}) {
    LoadSpec spec = Spec(3, capability);
    spec.chunks[1] = {};
    LoadPlanner planner(spec);
    const Actions actions = planner.Decide(Link(), 0);
    EXPECT_THAT(actions.give_ups, ElementsAre(GiveUp{1, GiveUpReason::kNotStored}));
    AnswerAll(planner, actions);
    const Actions end = planner.Decide(Link(), 1);
    EXPECT_THAT(end.loaded, ElementsAre(0, 2));
    EXPECT_TRUE(end.finished);
  }
}

TEST(Planner, ComputedPrefixIsNotLoaded) {
  LoadPlanner planner(Spec(3, RecomputeCapability::kBidirectional));
  const Actions first = planner.Decide(Link(5000), 0);
  Answer(planner, first.asks[1]);  // chunk 1
  planner.OnComputed(2);
  const Actions actions = planner.Decide(Link(5000), 10);
  EXPECT_THAT(actions.give_ups, ElementsAre(GiveUp{0, GiveUpReason::kComputed}));
  EXPECT_THAT(actions.loaded, ElementsAre(1));
  planner.OnComputed(3);
  const Actions end = planner.Decide(Link(5000), 20);
  EXPECT_THAT(end.give_ups, ElementsAre(GiveUp{2, GiveUpReason::kComputed}));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, AFailedBaseIsAskedOnceMore) {
  LoadPlanner planner(Spec(1, RecomputeCapability::kAny));
  planner.Decide(Link(), 0);
  planner.OnStepFailed(0, 0, true);
  const Actions again = planner.Decide(Link(), 1);
  ASSERT_FALSE(again.asks.empty());
  EXPECT_EQ(again.asks[0].first_step, 0u);
  EXPECT_EQ(again.asks[0].reason, "base again");
  planner.OnStepFailed(0, 0, true);
  const Actions end = planner.Decide(Link(), 2);
  EXPECT_THAT(end.give_ups, ElementsAre(GiveUp{0, GiveUpReason::kFailed}));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, ABaseThatCannotComeIsNotAskedAgain) {
  LoadPlanner planner(Spec(1, RecomputeCapability::kAny));
  planner.Decide(Link(), 0);
  planner.OnStepFailed(0, 0, false);
  EXPECT_TRUE(planner.Decide(Link(), 1).finished);
}

TEST(Planner, AFailedRefinementLeavesTheLoadedStep) {
  LoadPlanner planner(Spec(1, RecomputeCapability::kAny));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);
  planner.OnStepFailed(0, 1, true);
  const Actions end = planner.Decide(Link(), 1);
  EXPECT_THAT(end.asks, IsEmpty());
  EXPECT_THAT(end.loaded, ElementsAre(0));
  EXPECT_EQ(planner.loaded_step(0), 0);
}

TEST(Planner, ALostLinkEndsTheLoadEarly) {
  LoadPlanner planner(Spec(3, RecomputeCapability::kAny));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);  // 2 is loaded
  planner.OnBytes(1, 0, 100);      // 1 has arrived and waits for its decode
  planner.OnLinkLost(false);
  const Actions lost = planner.Decide(Link(), 10);
  EXPECT_THAT(lost.give_ups, ElementsAre(GiveUp{0, GiveUpReason::kFailed}));
  EXPECT_THAT(lost.loaded, ElementsAre(2));
  EXPECT_FALSE(lost.finished);
  planner.OnStepLoaded(1, 0);
  const Actions end = planner.Decide(Link(), 20);
  EXPECT_THAT(end.loaded, ElementsAre(1));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, ABaseThatIsDamagedOnALostLinkIsGivenUpAtOnce) {
  LoadPlanner planner(Spec(1, RecomputeCapability::kAny));
  planner.Decide(Link(), 0);
  planner.OnBytes(0, 0, 100);
  planner.OnLinkLost(false);
  EXPECT_FALSE(planner.Decide(Link(), 10).finished);
  planner.OnStepFailed(0, 0, true);
  const Actions end = planner.Decide(Link(), 20);
  EXPECT_THAT(end.give_ups, ElementsAre(GiveUp{0, GiveUpReason::kFailed}));
  EXPECT_TRUE(end.finished);
}

TEST(Planner, MissingPiecesAreAskedAgainWhenTheLinkIsBack) {
  LoadPlanner planner(Spec(2, RecomputeCapability::kAny));
  const Actions first = planner.Decide(Link(), 0);
  Answer(planner, first.asks[0]);
  planner.OnBytes(0, 0, 50);
  planner.OnLinkLost(true);
  const Actions waiting = planner.Decide(Link(), 10);
  EXPECT_THAT(waiting.asks, IsEmpty());
  EXPECT_FALSE(waiting.finished);
  planner.OnLinkRestored();
  const Actions again = planner.Decide(Link(), 20);
  EXPECT_THAT(AskedChunks(again), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_EQ(again.asks[0].bytes, 100u);
  AnswerAll(planner, again);
  EXPECT_TRUE(planner.Decide(Link(), 30).finished);
}

TEST(Planner, MemoryIsNotExceededAndChunksAreFinishedOneByOne) {
  LoadSpec spec = Spec(6, RecomputeCapability::kAny);
  spec.memory_bytes = 1500;  // six whole chunks need 4200
  LoadPlanner planner(spec);
  std::vector<uint64_t> held(6, 0);
  Actions actions;
  for (TimeUs now = 0; !actions.finished; now += 1000) {
    ASSERT_LT(now, kSlo);
    actions = planner.Decide(Link(), now);
    for (uint32_t chunk : actions.closed) held[chunk] = 0;
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
  LoadPlanner planner(spec);
  EXPECT_THAT(planner.Decide(Link(), 0).give_ups, ElementsAre(GiveUp{1, GiveUpReason::kTooLarge}));
}

TEST(Planner, DegenerateLoadsAreFinalAtOnce) {
  LoadPlanner empty(Spec(0, RecomputeCapability::kAny));
  EXPECT_TRUE(empty.Decide(Link(), 0).finished);

  LoadSpec spec = Spec(2, RecomputeCapability::kAny);
  spec.slo_us = 0;
  spec.chunks[0] = {};
  LoadPlanner no_time(spec);
  const Actions actions = no_time.Decide(Link(), 0);
  EXPECT_THAT(actions.give_ups,
              ElementsAre(GiveUp{0, GiveUpReason::kNotStored}, GiveUp{1, GiveUpReason::kLate}));
  EXPECT_TRUE(actions.finished);

  LoadSpec stored_nowhere = Spec(3, RecomputeCapability::kSuffix);
  for (ChunkLadder& ladder : stored_nowhere.chunks) ladder = {};
  LoadPlanner nothing(stored_nowhere);
  EXPECT_TRUE(nothing.Decide(Link(), 0).finished);
}

TEST(Planner, EventsThatMakeNoSenseAreIgnored) {
  LoadPlanner planner(Spec(1, RecomputeCapability::kAny));
  planner.OnStepLoaded(0, 2);  // never asked for
  planner.OnStepLoaded(7, 0);
  planner.OnStepFailed(7, 0, true);
  planner.OnBytes(7, 0, kHuge);
  planner.OnComputed(7);
  EXPECT_EQ(planner.loaded_step(0), -1);
  EXPECT_EQ(planner.loaded_step(7), -1);
  EXPECT_TRUE(planner.Decide(Link(), 0).finished);  // computed
  planner.OnStepLoaded(0, 0);
  EXPECT_EQ(planner.loaded_step(0), -1);
  EXPECT_TRUE(planner.Decide(Link(), 1).give_ups.empty());
}

}  // namespace
}  // namespace sluice::adapt
