// Pools that name a profile: where the daemon takes it from, and what becomes of loads and saves
// when it cannot be had.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/client/node_fixture.h"
#include "tests/client/test_profiles.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kChunks = 2;
constexpr uint32_t kTarget = 8;

class NodeProfileTest : public NodeFixture {
 protected:
  v1::RegisterPoolRequest PoolWith(const codec::Digest& profile_id) const {
    v1::RegisterPoolRequest request = PoolRequest();
    request.set_profile_id(std::string(codec::DigestBytes(profile_id)));
    return request;
  }

  void ExpectAll(const Loaded& loaded, v1::RecomputeReason reason, const std::string& message) {
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.error_message();
    ASSERT_EQ(loaded.chunks.size(), kChunks);
    for (const v1::ChunkOutcome& chunk : loaded.chunks) {
      EXPECT_EQ(chunk.reason(), reason) << chunk.DebugString();
      EXPECT_THAT(chunk.message(), HasSubstr(message));
    }
  }

  const std::string profile_ = ProfileWithSinks(layout_.geometry, 9);
};

TEST_F(NodeProfileTest, SavesAndLoadsUseThePoolsProfile) {
  Start();
  fake_->AddProfile(profile_);
  ASSERT_TRUE(Register(PoolWith(IdOf(profile_))).ok());
  EXPECT_EQ(fake_->num_get_profiles(), 1);
  const auto events = Save(Context<v1::SaveRequest>(kChunks, 0));
  ASSERT_EQ(events.back().state(), v1::SAVE_STATE_STORED) << events.back().message();
  EXPECT_EQ(fake_->last_put().namespace_().profile_id(),
            std::string(codec::DigestBytes(IdOf(profile_))));
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_NONE, "");
  // The same context under the built-in profile is another namespace.
  ASSERT_TRUE(Register(PoolRequest()).ok());
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_NOT_STORED, "");
  ASSERT_TRUE(Register(PoolWith(IdOf(profile_))).ok());
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_NONE, "");
  EXPECT_EQ(fake_->num_get_profiles(), 1);  // shared by the pools
}

TEST_F(NodeProfileTest, WrongProfilesAreRefusedByName) {
  Start();
  fake_->AddProfile("no profile");
  const std::string other = ProfileWithSinks(SmallGeometry(2, 2, 32), 4);
  fake_->AddProfile(other);
  auto request = PoolRequest();
  request.set_profile_id("short");
  const auto refuse = [&](const v1::RegisterPoolRequest& r, grpc::StatusCode code,
                          const std::string& says) {
    const grpc::Status status = Register(r);
    EXPECT_EQ(status.error_code(), code);
    EXPECT_THAT(status.error_message(), HasSubstr(says));
  };
  refuse(request, grpc::StatusCode::INVALID_ARGUMENT, "profile_id");
  refuse(PoolWith(IdOf(other)), grpc::StatusCode::INVALID_ARGUMENT,
         "planes[0].head_dim is 32 in the profile and 16 here");
  refuse(PoolWith(IdOf("no profile")), grpc::StatusCode::FAILED_PRECONDITION, "cannot be used");
  EXPECT_EQ(NodeStatus().pools(), 0u);
}

// It may be put again.
TEST_F(NodeProfileTest, ProfileThatTheServerHasLostIsAMiss) {
  Start();
  ASSERT_TRUE(Register(PoolWith(IdOf(profile_))).ok());
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_NOT_STORED, "profile");
  EXPECT_EQ(Save(Context<v1::SaveRequest>(kChunks, 0)).back().state(), v1::SAVE_STATE_FAILED);
  fake_->AddProfile(profile_);
  EXPECT_EQ(Save(Context<v1::SaveRequest>(kChunks, 0)).back().state(), v1::SAVE_STATE_STORED);
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_NONE, "");
}

// The engine starts while the server is away; later its loads find the profile.
TEST_F(NodeProfileTest, ServerThatIsAwayHoldsNoEngineUp) {
  profile_folder_ = ::testing::TempDir() + "node-profiles-" + std::to_string(getpid());
  std::filesystem::remove_all(profile_folder_);
  StartNode("127.0.0.1:1");
  ASSERT_TRUE(Register(PoolWith(IdOf(profile_))).ok());
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_SERVER_UNAVAILABLE, "");
  const auto events = Save(Context<v1::SaveRequest>(kChunks, 0));
  EXPECT_EQ(events.back().state(), v1::SAVE_STATE_FAILED);
  std::filesystem::create_directories(profile_folder_);
  std::ofstream(profile_folder_ + "/" + codec::DigestHex(IdOf(profile_)), std::ios::binary)
      << profile_;
  const Loaded loaded = Load(LoadContext(kChunks, kTarget));  // gets as far as the chunks
  ASSERT_EQ(loaded.chunks.size(), kChunks);
  EXPECT_THAT(loaded.chunks[0].message(), testing::Not(HasSubstr("profile")));
  Stop();
  std::filesystem::remove_all(profile_folder_);
}

TEST_F(NodeProfileTest, ProfileThatComesTooLateIsARecompute) {
  FakeStore::Faults faults;
  faults.hold = true;
  Start(faults);
  fake_->AddProfile(profile_);
  // The engine gives up registering; the daemon goes on fetching.
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  v1::RegisterPoolResponse response;
  EXPECT_EQ(node_->RegisterPool(&context, PoolWith(IdOf(profile_)), &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  fake_->Release();
  ASSERT_TRUE(Register(PoolWith(IdOf(profile_))).ok());
  EXPECT_EQ(fake_->num_get_profiles(), 1);
}

}  // namespace
}  // namespace sluice::client
