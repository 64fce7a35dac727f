// Which frame comes when: the queue and the session, without gRPC and with a clock that stands
// still.
#include "server/fetch_session.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "server/memory_store.h"
#include "tests/server/testing.h"

namespace sluice::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FetchSessionTest : public testing::Test {
 protected:
  static constexpr size_t kFrameBytes = 1000;

  FetchSessionTest() : store_(1 << 20, 4, clock_.clock()), cache_(&store_, 0, 0) {
    chunk_ = MakeChunk({.segment_bytes = {1500, 3000}, .groups = 1});
    EXPECT_THAT(PutChunk(store_, chunk_).status(), IsOk());
    session_ = std::make_unique<FetchSession>(
        &store_, &cache_,
        FetchSession::Options{chunk_.id.namespace_digest, kFrameBytes, 4, clock_.clock()});
  }

  Ask MakeAsk(uint32_t id, FetchClass fetch_class,
              absl::Duration deadline = absl::InfiniteDuration()) {
    const absl::Time now = clock_.clock()();
    return {id, chunk_.id.key, false, 0, 1, fetch_class, now, now + deadline};
  }

  // All frames until the end, as "<ask>" or "<ask>:<result>" for an answer without bytes.
  std::vector<std::string> Drain() {
    session_->CloseInput();
    std::vector<std::string> frames;
    Frame frame;
    while (session_->NextFrame(&frame)) {
      frames.push_back(absl::StrCat(frame.ask_id));
      if (frame.result != FetchResult::kOk) {
        absl::StrAppend(&frames.back(), ":", static_cast<int>(frame.result));
        EXPECT_TRUE(frame.last);
        EXPECT_TRUE(frame.payload.empty());
      }
    }
    return frames;
  }

  FakeClock clock_;
  MemoryStore store_;
  ChunkCache cache_;
  TestChunk chunk_;
  std::unique_ptr<FetchSession> session_;
};

TEST_F(FetchSessionTest, BaseFirstThenTheEarliestDeadline) {
  ASSERT_THAT(session_->AddAsk(MakeAsk(1, FetchClass::kRefinement, absl::Seconds(1))), IsOk());
  ASSERT_THAT(session_->AddAsk(MakeAsk(2, FetchClass::kBase)), IsOk());
  ASSERT_THAT(session_->AddAsk(MakeAsk(3, FetchClass::kBase, absl::Seconds(9))), IsOk());
  ASSERT_THAT(session_->AddAsk(MakeAsk(4, FetchClass::kBase, absl::Seconds(9))), IsOk());
  EXPECT_THAT(Drain(), ElementsAre("3", "3", "4", "4", "2", "2", "1", "1"));
}

TEST_F(FetchSessionTest, BaseOvertakesARunningRefinement) {
  ASSERT_THAT(session_->AddAsk(MakeAsk(1, FetchClass::kRefinement)), IsOk());
  Frame frame;
  ASSERT_TRUE(session_->NextFrame(&frame));
  EXPECT_EQ(frame.ask_id, 1u);
  EXPECT_FALSE(frame.last);
  EXPECT_EQ(frame.payload.size(), kFrameBytes);
  ASSERT_THAT(session_->AddAsk(MakeAsk(2, FetchClass::kBase)), IsOk());
  EXPECT_THAT(Drain(), ElementsAre("2", "2", "1"));
}

TEST_F(FetchSessionTest, LateAsksGetNoBytes) {
  ASSERT_THAT(session_->AddAsk(MakeAsk(1, FetchClass::kBase, absl::Milliseconds(5))), IsOk());
  ASSERT_THAT(session_->AddAsk(MakeAsk(2, FetchClass::kBase, absl::Milliseconds(7))), IsOk());
  Frame frame;
  ASSERT_TRUE(session_->NextFrame(&frame));
  clock_.Advance(absl::Milliseconds(5));  // in the middle of the first
  ASSERT_TRUE(session_->NextFrame(&frame));
  EXPECT_EQ(frame.result, FetchResult::kLate);
  ASSERT_TRUE(session_->NextFrame(&frame));
  EXPECT_EQ(frame.ask_id, 2u);
  EXPECT_EQ(frame.queue_delay_us, 5000u);
  clock_.Advance(absl::Milliseconds(5));
  EXPECT_THAT(Drain(), ElementsAre("2:3"));
}

TEST_F(FetchSessionTest, CancelledAsksAreAnsweredFirst) {
  ASSERT_THAT(session_->AddAsk(MakeAsk(1, FetchClass::kBase)), IsOk());
  ASSERT_THAT(session_->AddAsk(MakeAsk(2, FetchClass::kRefinement)), IsOk());
  session_->Cancel(2);
  session_->Cancel(77);  // unknown: no effect
  EXPECT_THAT(Drain(), ElementsAre("2:4", "1", "1"));
}

TEST_F(FetchSessionTest, TooManyAsksAreBusy) {
  for (uint32_t id = 1; id <= 4; ++id) {
    ASSERT_THAT(session_->AddAsk(MakeAsk(id, FetchClass::kRefinement)), IsOk());
  }
  ASSERT_THAT(session_->AddAsk(MakeAsk(5, FetchClass::kBase)), IsOk());
  EXPECT_THAT(session_->AddAsk(MakeAsk(1, FetchClass::kBase)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ask_id")));
  EXPECT_THAT(Drain(), ElementsAre("5:5", "1", "1", "2", "2", "3", "3", "4", "4"));
}

TEST_F(FetchSessionTest, FloodOfAsksWaitsForTheReader) {
  constexpr uint32_t kAsks = 500;
  std::thread flood([&] {
    for (uint32_t id = 1; id <= kAsks; ++id) {
      ASSERT_THAT(session_->AddAsk(MakeAsk(id, FetchClass::kBase)), IsOk());
    }
    session_->CloseInput();
  });
  uint32_t answers = 0;
  Frame frame;
  while (session_->NextFrame(&frame)) answers += frame.last;
  flood.join();
  EXPECT_EQ(answers, kAsks);
}

TEST_F(FetchSessionTest, AbortEndsBothSides) {
  for (uint32_t id = 1; id <= 4; ++id) {
    ASSERT_THAT(session_->AddAsk(MakeAsk(id, FetchClass::kBase)), IsOk());
  }
  std::thread flood([&] {  // nobody takes the busy answers
    for (uint32_t id = 5; id <= 200; ++id)
      session_->AddAsk(MakeAsk(id, FetchClass::kBase)).IgnoreError();
  });
  session_->Abort();
  flood.join();
  Frame frame;
  EXPECT_FALSE(session_->NextFrame(&frame));
}

TEST_F(FetchSessionTest, ReplacedChunkIsNotMixed) {
  Ask ask = MakeAsk(1, FetchClass::kRefinement);
  ask.num_layers = 2;
  ASSERT_THAT(session_->AddAsk(ask), IsOk());
  const TestChunk other = MakeChunk({.index = 1, .segment_bytes = {10}, .groups = 1});
  ASSERT_THAT(PutChunk(store_, other).status(), IsOk());
  Frame frame;
  ASSERT_TRUE(session_->NextFrame(&frame));
  ASSERT_THAT(store_.Delete({chunk_.id.namespace_digest, {chunk_.id.key}, {}}, true).status(),
              IsOk());
  const TestChunk variant = MakeChunk({.segment_bytes = {1500, 3000}, .groups = 1, .variant = 1});
  ASSERT_THAT(PutChunk(store_, variant).status(), IsOk());
  Ask overtaking = MakeAsk(2, FetchClass::kBase);
  overtaking.chunk_key = other.id.key;
  ASSERT_THAT(session_->AddAsk(overtaking), IsOk());
  EXPECT_THAT(Drain(), ElementsAre("2", "1:1"));
}

TEST_F(FetchSessionTest, LoadingCountsAsUse) {
  clock_.Advance(absl::Minutes(1));
  session_ = std::make_unique<FetchSession>(
      &store_, &cache_,
      FetchSession::Options{chunk_.id.namespace_digest, kFrameBytes, 4, clock_.clock()});
  ASSERT_THAT(session_->AddAsk(MakeAsk(1, FetchClass::kBase)), IsOk());
  Drain();
  EXPECT_EQ((*store_.ListChunks(chunk_.id.namespace_digest, std::nullopt, 1))[0].used_at,
            clock_.clock()());
}

}  // namespace
}  // namespace sluice::server
