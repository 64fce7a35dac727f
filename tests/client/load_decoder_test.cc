#include "client/load_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/shared_link.h"
#include "tests/client/scripted_store.h"

namespace sluice::client {
namespace {

constexpr uint32_t kSeed = 7;
constexpr adapt::TimeUs kNoEndUs = adapt::TimeUs{1} << 60;

const TestContext& Context() {
  static const TestContext context = MakeContext(1, kSeed);
  return context;
}

class CountingSink final : public PlaneSink {
 public:
  absl::Status Write(uint32_t, size_t, const codec::GroupDecoder&) override {
    absl::MutexLock lock(&mutex_);
    ++writes_;
    return absl::OkStatus();
  }
  int writes() const {
    absl::MutexLock lock(&mutex_);
    return writes_;
  }

 private:
  mutable absl::Mutex mutex_;
  int writes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Group 0 of the context's only chunk.
DecodeTask Task(codec::Level level) {
  const std::string& container = Context().containers[0];
  DecodeTask task;
  task.step = level;
  task.input.level = level;
  task.input.header = std::make_shared<const codec::ChunkHeader>(
      codec::ParseChunkHeader(std::as_bytes(std::span(container))).value());
  for (int layer = 0; layer <= level; ++layer) {
    task.input.segments.push_back(std::make_shared<const std::string>(
        container.substr(task.input.header->SegmentOffset(layer, 0),
                         task.input.header->layers[layer].segments[0].bytes)));
  }
  return task;
}

// One thread, which is busy until Release.
class LoadDecoderTest : public testing::Test {
 protected:
  LoadDecoderTest() {
    pool_.Post(true, [this] { released_.WaitForNotification(); });
  }
  ~LoadDecoderTest() override {
    if (!released_.HasBeenNotified()) released_.Notify();
  }

  void Start(adapt::TimeUs end_us = kNoEndUs) {
    decoder_.emplace(pool_, Context().SharedProfile(), sink_, events_, 1, end_us);
  }
  // Returns once everything that was submitted has been through the pool.
  void Release() {
    absl::Notification through;
    pool_.Post(false, [&] { through.Notify(); });
    released_.Notify();
    through.WaitForNotification();
  }
  std::vector<int> StepsDone() {
    std::vector<int> steps;
    while (std::optional<LoadEvent> event = events_.Pop(absl::InfinitePast())) {
      steps.push_back(std::get<GroupDone>(*event).step);
    }
    return steps;
  }

  absl::Notification released_;
  CountingSink sink_;
  LoadEvents events_{1 << 20};
  DecodePool pool_{1};
  std::optional<LoadDecoder> decoder_;
};

TEST_F(LoadDecoderTest, WhatWaitsIsReplacedAndDecodedOnce) {
  Start();
  EXPECT_FALSE(decoder_->Replace(Task(1)));  // nothing waits
  decoder_->Submit(Task(0));
  EXPECT_TRUE(decoder_->Replace(Task(1)));
  EXPECT_TRUE(decoder_->Replace(Task(2)));
  Release();
  EXPECT_THAT(StepsDone(), testing::ElementsAre(2));
  EXPECT_EQ(sink_.writes(), 1);
  EXPECT_FALSE(decoder_->Replace(Task(2)));  // it is done
}

TEST_F(LoadDecoderTest, TheSpeedIsLearnt) {
  Start();
  EXPECT_EQ(pool_.DecodeUs(2, uint64_t{1} << 40), 0);
  decoder_->Submit(Task(2));
  Release();
  EXPECT_GT(pool_.DecodeUs(2, uint64_t{1} << 40), 0);
}

TEST_F(LoadDecoderTest, NothingIsWrittenAtTheEndOfTheLoad) {
  Start(NowUs());
  decoder_->Submit(Task(0));
  Release();
  EXPECT_EQ(sink_.writes(), 0);
  EXPECT_THAT(StepsDone(), testing::IsEmpty());
}

TEST_F(LoadDecoderTest, ARevokedChunkIsNotDecoded) {
  Start();
  decoder_->Submit(Task(0));
  decoder_->Revoke(0);
  Release();
  EXPECT_EQ(sink_.writes(), 0);
  EXPECT_THAT(StepsDone(), testing::IsEmpty());
}

TEST(DecodePool, TheSpeedIsThatOfAllThreadsSmoothed) {
  DecodePool pool(2);
  pool.OnDecoded(0, 1000, 100);
  EXPECT_EQ(pool.DecodeUs(0, 1000), 50);
  pool.OnDecoded(0, 1000, 300);
  EXPECT_EQ(pool.DecodeUs(0, 1000), 100);
  pool.OnDecoded(0, 0, 300);
  EXPECT_EQ(pool.DecodeUs(0, 1000), 100);
  EXPECT_EQ(pool.DecodeUs(1, 1000), 100);  // not known
  pool.OnDecoded(2, 1000, 800);
  EXPECT_EQ(pool.DecodeUs(0, 1000), 100);
  EXPECT_EQ(pool.DecodeUs(1, 1000), 400);
}

}  // namespace
}  // namespace sluice::client
