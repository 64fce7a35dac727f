// Pools that are held for as long as their engine lives.
#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "tests/client/node_fixture.h"

namespace sluice::client {
namespace {

constexpr uint32_t kChunks = 3;

class NodeHoldTest : public NodeFixture {
 protected:
  // An engine's call that holds a pool.
  class Hold {
   public:
    Hold(v1::Node::Stub& node, uint64_t pool_id) {
      v1::HoldPoolRequest request;
      request.set_pool_id(pool_id);
      reader_ = node.HoldPool(&context_, request);
    }
    ~Hold() { Cancel(); }

    bool Read() { return reader_->Read(&response_); }
    void Cancel() {
      context_.TryCancel();
      if (!over_) End();
    }
    // Waits for the end.
    grpc::Status End() {
      while (Read()) {
      }
      over_ = true;
      return reader_->Finish();
    }

   private:
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReader<v1::HoldPoolResponse>> reader_;
    v1::HoldPoolResponse response_;
    bool over_ = false;
  };

  void ExpectNoPools() {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (NodeStatus().pools() > 0 && absl::Now() < deadline) {
    }
    EXPECT_EQ(NodeStatus().pools(), 0u);
  }
};

TEST_F(NodeHoldTest, PoolGoesWithItsEngine) {
  Start({.hold = true});
  ASSERT_TRUE(Register(PoolRequest()).ok());
  Hold hold(*node_, pool_id_);
  ASSERT_TRUE(hold.Read());
  EXPECT_EQ(NodeStatus().pools(), 1u);
  grpc::ClientContext context;
  const auto reader = node_->Load(&context, LoadContext(kChunks, 0));
  v1::LoadEvent event;
  ASSERT_TRUE(reader->Read(&event));
  hold.Cancel();
  const Loaded loaded = Finish(*reader);  // as by UnregisterPool
  ASSERT_EQ(loaded.chunks.size(), kChunks);
  EXPECT_EQ(loaded.chunks[0].reason(), v1::RECOMPUTE_REASON_CANCELLED);
  ExpectNoPools();
  EXPECT_EQ(Unregister().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(NodeHoldTest, UnregisteringEndsTheCall) {
  Start();
  ASSERT_TRUE(Register(PoolRequest()).ok());
  Hold hold(*node_, pool_id_);
  ASSERT_TRUE(hold.Read());
  EXPECT_TRUE(Unregister().ok());
  EXPECT_TRUE(hold.End().ok());
}

TEST_F(NodeHoldTest, StoppingEndsTheCallAndLeavesThePoolToItsSaves) {
  Start();
  ASSERT_TRUE(Register(PoolRequest()).ok());
  Hold hold(*node_, pool_id_);
  ASSERT_TRUE(hold.Read());
  service_->Stop(absl::InfinitePast());
  EXPECT_EQ(hold.End().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(NodeStatus().pools(), 1u);
  EXPECT_EQ(Hold(*node_, pool_id_).End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(NodeHoldTest, OnlyARegisteredPoolIsHeldAndOnlyOnce) {
  Start();
  ASSERT_TRUE(Register(PoolRequest()).ok());
  EXPECT_EQ(Hold(*node_, pool_id_ + 1).End().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Hold(*node_, 0).End().error_code(), grpc::StatusCode::NOT_FOUND);
  Hold hold(*node_, pool_id_);
  ASSERT_TRUE(hold.Read());
  EXPECT_EQ(Hold(*node_, pool_id_).End().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(NodeStatus().pools(), 1u);
}

// More than there are threads for calls.
TEST_F(NodeHoldTest, HeldPoolsBlockNoOtherCalls) {
  constexpr size_t kPools = 200;
  NodeService::Config config;
  config.max_pools = kPools;
  max_threads_ = 8;
  Start({}, config);
  std::vector<std::unique_ptr<Hold>> holds;
  std::set<uint64_t> ids;
  for (size_t i = 0; i < kPools; ++i) {
    ASSERT_TRUE(Register(PoolRequest()).ok());
    ids.insert(pool_id_);
    holds.push_back(std::make_unique<Hold>(*node_, pool_id_));
    ASSERT_TRUE(holds.back()->Read());
  }
  EXPECT_EQ(ids.size(), kPools);
  EXPECT_EQ(NodeStatus().pools(), kPools);
  EXPECT_EQ(Load(LoadContext(kChunks, 0)).chunks.size(), kChunks);
  holds.clear();
  ExpectNoPools();
}

TEST_F(NodeHoldTest, AnIdOfADaemonBeforeIsNotKnown) {
  Start();
  ASSERT_TRUE(Register(PoolRequest()).ok());
  const auto before = LoadContext(kChunks, 0);
  EXPECT_NE(before.pool_id(), 0u);
  Stop();
  StartNode(fake_->address());
  ASSERT_TRUE(Register(PoolRequest()).ok());
  EXPECT_NE(pool_id_, before.pool_id());
  EXPECT_EQ(Load(before).status.error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace sluice::client
