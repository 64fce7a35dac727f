#include "client/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/time/clock.h"
#include "tests/client/fake_store.h"
#include "tests/client/shm_pool.h"
#include "tests/codec/test_profiles.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kChunkTokens = 32;
constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kBlocks = 8;
constexpr absl::Duration kPatience = absl::Seconds(60);

class SaverTest : public ::testing::Test {
 protected:
  SaverTest()
      : layout_(HeadMajorLayout(SmallGeometry(2, 2, 16), kBlocks, kBlockTokens)),
        shm_(layout_.pool_bytes),
        registry_(4) {
    for (size_t i = 0; i < shm_.size(); i += 2) {  // bf16 between 0.5 and 2
      shm_.data()[i] = static_cast<std::byte>(i * 37 >> 3);
      shm_.data()[i + 1] = std::byte{0x3f};
    }
    UsePool(*codec::Profile::Builtin(layout_.geometry));
  }

  // Jobs are of a pool with this profile from now on.
  void UsePool(codec::Profile profile) {
    auto blocks = BlockPool::Map(shm_.name(), layout_);
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    pool_id_ = *registry_.Add(std::make_shared<RegisteredPool>(
        *std::move(blocks), std::make_shared<const codec::Profile>(std::move(profile))));
  }

  void Start(FakeStore::Faults faults = {}, Saver::Config config = {}) {
    fake_ = std::make_unique<FakeStore>(std::move(faults));
    saver_ = std::make_unique<Saver>(RemoteStore::Create(fake_->address()), config);
  }

  SaveJob Job(size_t num_chunks) {
    SaveJob job;
    job.pool = *registry_.Find(pool_id_);
    job.descriptor.model = "m";
    job.descriptor.chunk_tokens = kChunkTokens;
    job.descriptor.profile_id = job.pool->profile_id();
    std::vector<uint32_t> tokens(num_chunks * kChunkTokens);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i);
    job.chunk_keys = codec::ChunkKeys(codec::NamespaceDigest(job.descriptor), tokens, kChunkTokens);
    for (uint32_t i = 0; i < num_chunks * 2; ++i) job.block_ids.push_back(kBlocks - 1 - i);
    return job;
  }

  std::shared_ptr<SaveTicket> Enqueue(size_t num_chunks) {
    auto ticket = saver_->Enqueue(Job(num_chunks));
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return *ticket;
  }

  static SaveProgress Next(SaveTicket& ticket) {
    const auto progress = ticket.Next(kPatience);
    EXPECT_TRUE(progress.has_value());
    return progress.value_or(SaveProgress());
  }

  static SaveProgress Last(SaveTicket& ticket) {
    SaveProgress progress = Next(ticket);
    if (progress.state == SaveState::kCopied) progress = Next(ticket);
    return progress;
  }

  const BlockLayout layout_;
  ShmPool shm_;
  PoolRegistry registry_;
  uint64_t pool_id_ = 0;
  std::unique_ptr<FakeStore> fake_;
  std::unique_ptr<Saver> saver_;
};

TEST_F(SaverTest, StoresWhatIsMissing) {
  Start();
  const auto first = Enqueue(1);
  EXPECT_EQ(Next(*first).state, SaveState::kCopied);
  const SaveProgress stored = Next(*first);
  EXPECT_EQ(stored.state, SaveState::kStored) << stored.message;
  EXPECT_EQ(stored.stored_chunks, 1u);
  EXPECT_GT(stored.bytes, 0u);

  const auto second = Enqueue(3);
  const SaveProgress more = Last(*second);
  EXPECT_EQ(more.state, SaveState::kStored) << more.message;
  EXPECT_EQ(more.stored_chunks, 2u);
  EXPECT_EQ(more.existing_chunks, 1u);
  EXPECT_EQ(fake_->num_puts(), 3);
  EXPECT_EQ(fake_->num_lookups(), 2);
  EXPECT_EQ(fake_->last_put().parent_key(), std::string(codec::DigestBytes(Job(3).chunk_keys[1])));
}

TEST_F(SaverTest, NothingIsSentWhenAllIsThere) {
  Start();
  EXPECT_EQ(Last(*Enqueue(2)).stored_chunks, 2u);
  const auto ticket = Enqueue(2);
  EXPECT_EQ(Next(*ticket).state, SaveState::kCopied);
  const SaveProgress again = Next(*ticket);
  EXPECT_EQ(again.state, SaveState::kStored);
  EXPECT_EQ(again.existing_chunks, 2u);
  EXPECT_EQ(again.bytes, 0u);
}

// Profiles that say that they need 3 bits an element; of much finer steps, that is not so.
TEST_F(SaverTest, CountsChunksOfUnusualRate) {
  Start();
  EXPECT_EQ(Last(*Enqueue(2)).unusual_rate_chunks, 0u);  // built-in profiles have no figure
  UsePool(codec::MakeCalibratedProfile(layout_.geometry, 2, 0.5, 1));
  EXPECT_EQ(Last(*Enqueue(2)).unusual_rate_chunks, 0u);
  UsePool(codec::MakeCalibratedProfile(layout_.geometry, 2, 0.001, 1));
  EXPECT_EQ(Last(*Enqueue(2)).unusual_rate_chunks, 2u);
  EXPECT_EQ(Last(*Enqueue(3)).unusual_rate_chunks, 1u);  // two are there
  EXPECT_EQ(saver_->unusual_rate_chunks(), 3u);
}

TEST_F(SaverTest, ContextWithoutFullChunkIsStoredAtOnce) {
  Start();
  EXPECT_EQ(Last(*Enqueue(0)).state, SaveState::kStored);
}

TEST_F(SaverTest, QueueIsBounded) {
  Start({.hold = true}, {.threads = 1, .max_saves = 2});
  const auto first = Enqueue(1);
  const auto second = Enqueue(2);
  EXPECT_EQ(saver_->size(), 2u);
  const auto third = saver_->Enqueue(Job(1));
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("limits.saves"));
  fake_->Release();
  EXPECT_EQ(Last(*first).state, SaveState::kStored);
  EXPECT_EQ(Last(*second).state, SaveState::kStored);
}

TEST_F(SaverTest, CancelEndsWaitingAtOnceAndRunningBeforeItsNextChunk) {
  Start({.hold = true}, {.threads = 1, .max_saves = 8});
  const auto running = Enqueue(1);
  const auto waiting = Enqueue(2);
  saver_->Cancel(waiting);
  EXPECT_EQ(Next(*waiting).state, SaveState::kFailed);  // although the server still says nothing
  saver_->Cancel(running);
  fake_->Release();
  EXPECT_EQ(Next(*running).state, SaveState::kFailed);
  EXPECT_EQ(fake_->num_chunks(), 0u);
}

TEST_F(SaverTest, DeadAndSilentServersFailTheSave) {
  Start();
  fake_->Kill();
  EXPECT_EQ(Last(*Enqueue(1)).state, SaveState::kFailed);

  Start({.hold = true}, {.threads = 1, .max_saves = 1, .put_timeout = absl::Milliseconds(50)});
  const SaveProgress progress = Last(*Enqueue(1));
  EXPECT_EQ(progress.state, SaveState::kFailed);
  EXPECT_THAT(progress.message, HasSubstr(fake_->address()));
}

TEST_F(SaverTest, UnregisteringWaitsForTheSave) {
  Start({.hold = true});
  const auto in_use = *registry_.Find(pool_id_);  // however soon the save lets go of the pool
  const auto ticket = Enqueue(1);
  EXPECT_EQ(registry_.Remove(pool_id_, absl::Now()).code(), absl::StatusCode::kDeadlineExceeded);
  fake_->Release();
  EXPECT_EQ(Next(*ticket).state, SaveState::kFailed);
  EXPECT_EQ(fake_->num_chunks(), 0u);
}

TEST_F(SaverTest, DrainFinishesSavesInTime) {
  Start();
  const auto ticket = Enqueue(2);
  EXPECT_TRUE(saver_->Drain(absl::Now() + kPatience));
  EXPECT_EQ(Last(*ticket).state, SaveState::kStored);
  EXPECT_EQ(saver_->Enqueue(Job(1)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SaverTest, DrainGivesUpAtItsDeadline) {
  Start({.hold = true});
  const auto ticket = Enqueue(2);
  EXPECT_FALSE(saver_->Drain(absl::Now()));
  fake_->Release();
  EXPECT_EQ(Next(*ticket).state, SaveState::kFailed);
  EXPECT_EQ(fake_->num_chunks(), 0u);
}

TEST_F(SaverTest, ShortenedPoolFailsTheSave) {
  Start();
  ASSERT_TRUE(shm_.Truncate(10));
  const SaveProgress progress = Last(*Enqueue(1));
  EXPECT_EQ(progress.state, SaveState::kFailed);
  EXPECT_THAT(progress.message, HasSubstr("shortened"));
}

}  // namespace
}  // namespace sluice::client
