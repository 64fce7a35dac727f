// What the daemon says is stored, and what of it a load would try, to engines with and without a
// pool.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/node_fixture.h"
#include "tests/client/test_profiles.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kChunks = 3;

class NodeQueryTest : public NodeFixture {
 protected:
  void StartAndSave(const std::string& profile_id = "", FakeStore::Faults faults = {}) {
    Start(std::move(faults));
    if (!profile_id.empty()) fake_->AddProfile(profile_);
    v1::RegisterPoolRequest pool = PoolRequest();
    pool.set_profile_id(profile_id);
    ASSERT_TRUE(Register(pool).ok());
    const auto events = Save(Context<v1::SaveRequest>(kChunks, 0));
    ASSERT_EQ(events.back().state(), v1::SAVE_STATE_STORED) << events.back().message();
  }

  void ExpectAnswer(const v1::QueryRequest& request, uint32_t stored, uint32_t planned) {
    const v1::QueryResponse response = Query(request);
    EXPECT_TRUE(status_.ok()) << status_.error_message();
    EXPECT_EQ(response.stored_tokens(), stored * kChunkTokens);
    EXPECT_EQ(response.planned_tokens(), planned * kChunkTokens);
  }

  const std::string profile_ = ProfileWithSinks(layout_.geometry, 9);
  const std::string profile_id_ = std::string(codec::DigestBytes(IdOf(profile_)));
};

TEST_F(NodeQueryTest, CountsUpToTheFirstGap) {
  StartAndSave();
  v1::QueryRequest of_pool = QueryOf(kChunks + 1);
  of_pool.clear_geometry();
  of_pool.set_pool_id(pool_id_);
  ExpectAnswer(of_pool, kChunks, kChunks);
  EXPECT_TRUE(Unregister().ok());
  Query(of_pool);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
  ExpectAnswer(QueryOf(kChunks + 1), kChunks, kChunks);
  ExpectAnswer(QueryOf(1), 1, 1);
  v1::QueryRequest other = QueryOf(kChunks);
  other.mutable_identity()->set_model("other");
  ExpectAnswer(other, 0, 0);
}

TEST_F(NodeQueryTest, PlansNothingWhenComputingIsFaster) {
  StartAndSave();
  ASSERT_EQ(Load(LoadContext(kChunks, 8)).summary.loaded_chunks(), kChunks);
  ASSERT_TRUE(ReportPrefills(0.001).ok());
  ExpectAnswer(QueryOf(kChunks), kChunks, 0);
}

TEST_F(NodeQueryTest, PlansAllWhileNothingIsKnownOfTheLink) {
  StartAndSave();
  ASSERT_TRUE(ReportPrefills(0.001).ok());
  ExpectAnswer(QueryOf(kChunks), kChunks, kChunks);
  EXPECT_EQ(NodeStatus().link_bytes_per_s(), 0);
}

TEST_F(NodeQueryTest, PlansAllWhenLoadingIsFaster) {
  StartAndSave();
  ASSERT_EQ(Load(LoadContext(kChunks, 8)).summary.loaded_chunks(), kChunks);
  ASSERT_TRUE(ReportPrefills(5000).ok());
  for (const uint32_t slo_ms : {0u, kSloMs}) {
    v1::QueryRequest request = QueryOf(kChunks);
    request.set_slo_ms(slo_ms);
    ExpectAnswer(request, kChunks, kChunks);
  }
}

TEST_F(NodeQueryTest, UsesTheProfileThatItNames) {
  StartAndSave(profile_id_);
  ExpectAnswer(QueryOf(kChunks), 0, 0);  // the built-in one's namespace
  v1::QueryRequest request = QueryOf(kChunks);
  request.set_profile_id(profile_id_);
  ExpectAnswer(request, kChunks, kChunks);
  request.mutable_geometry()->mutable_planes(0)->set_head_dim(32);
  Query(request);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status_.error_message(), HasSubstr("planes[0].head_dim is 16 in the profile"));
}

TEST_F(NodeQueryTest, PlansAllWithoutTheProfile) {
  bool spoilt = false;
  FakeStore::Faults faults;
  faults.tamper_profile = [&](v1::ProfileFrame& frame) {
    if (spoilt) frame.mutable_payload()->back() ^= 1;
  };
  StartAndSave(profile_id_, std::move(faults));
  Stop();
  StartNode(fake_->address());
  spoilt = true;
  v1::QueryRequest request = QueryOf(kChunks);
  request.set_profile_id(profile_id_);
  ExpectAnswer(request, kChunks, kChunks);
}

TEST_F(NodeQueryTest, DeadServerIsUnavailable) {
  StartAndSave();
  fake_->Kill();
  Query(QueryOf(kChunks));
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(NodeQueryTest, BadQueriesAreNamed) {
  StartAndSave();
  using Change = std::function<void(v1::QueryRequest&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"timeout_ms is 0", [](v1::QueryRequest& r) { r.set_timeout_ms(0); }},
      {"slo_ms is 600001", [](v1::QueryRequest& r) { r.set_slo_ms(kMaxSloMs + 1); }},
      {"pool_id is set", [this](v1::QueryRequest& r) { r.set_pool_id(pool_id_); }},
      {"geometry is not set", [](v1::QueryRequest& r) { r.clear_geometry(); }},
      {"planes", [](v1::QueryRequest& r) { r.mutable_geometry()->clear_planes(); }},
      {"profile_id", [](v1::QueryRequest& r) { r.set_profile_id("short"); }},
      {"model", [](v1::QueryRequest& r) { r.mutable_identity()->clear_model(); }},
  };
  for (const auto& [field, change] : cases) {
    v1::QueryRequest request = QueryOf(kChunks);
    change(request);
    Query(request);
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(status_.error_message(), HasSubstr(field));
  }
}

}  // namespace
}  // namespace sluice::client
