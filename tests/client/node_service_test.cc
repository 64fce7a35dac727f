#include "client/node_service.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "client/file_io.h"
#include "client/load_record_file.h"
#include "tests/client/node_fixture.h"
#include "tests/client/packed_layouts.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kChunks = 3;
constexpr uint32_t kSource = 0;  // blocks that are saved
constexpr uint32_t kTarget = 8;  // blocks that are loaded into

float FromBf16(const std::byte* bytes) {
  uint32_t bits =
      (std::to_integer<uint32_t>(bytes[0]) << 16) | (std::to_integer<uint32_t>(bytes[1]) << 24);
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

class NodeServiceTest : public NodeFixture {
 protected:
  // Fills the source blocks with a normal distribution, everything else with a mark.
  void FillPool() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < shm_.size(); i += 2) {
      const float value = normal(random);
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      shm_.data()[i] = static_cast<std::byte>(bits >> 16);
      shm_.data()[i + 1] = static_cast<std::byte>(bits >> 24);
    }
  }

  void StartAndSave(bool lossless = false, FakeStore::Faults faults = {},
                    NodeService::Config config = {}) {
    Start(std::move(faults), std::move(config));
    FillPool();
    ASSERT_TRUE(Register(PoolRequest()).ok());
    auto request = Context<v1::SaveRequest>(kChunks, kSource);
    request.set_lossless(lossless);
    const auto events = Save(request);
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0].state(), v1::SAVE_STATE_ACCEPTED);
    EXPECT_EQ(events[1].state(), v1::SAVE_STATE_COPIED);
    ASSERT_EQ(events[2].state(), v1::SAVE_STATE_STORED) << events[2].message();
    ASSERT_EQ(events[2].stored_chunks(), kChunks);
  }

  // The planes' bytes of `num_chunks` chunks in blocks `first_block`, ... .
  std::vector<std::byte> Planes(uint32_t first_block, uint32_t num_chunks) {
    return Planes(shm_, layout_, first_block, num_chunks);
  }

  static std::vector<std::byte> Planes(const ShmPool& shm, const BlockLayout& layout,
                                       uint32_t first_block, uint32_t num_chunks) {
    return Blocks(shm, layout, first_block, num_chunks * kPerChunk);
  }

  std::vector<std::byte> Blocks(uint32_t first_block, uint32_t num_blocks) {
    return Blocks(shm_, layout_, first_block, num_blocks);
  }

  static std::vector<std::byte> Blocks(const ShmPool& shm, const BlockLayout& layout,
                                       uint32_t first_block, uint32_t num_blocks) {
    auto pool = BlockPool::Map(shm.name(), layout);
    EXPECT_TRUE(pool.ok()) << pool.status();
    std::vector<uint32_t> blocks;
    for (uint32_t i = 0; i < num_blocks; ++i) blocks.push_back(first_block + i);
    std::vector<std::byte> all;
    for (size_t i = 0; i < layout.planes.size(); ++i) {
      std::vector<std::byte> plane(layout.geometry.planes[i].bytes_per_token() * kBlockTokens *
                                   num_blocks);
      EXPECT_TRUE((*pool)->Gather(i, blocks, plane).ok());
      all.insert(all.end(), plane.begin(), plane.end());
    }
    return all;
  }

  void ExpectLoadsEnd(absl::Duration limit) {
    const absl::Time deadline = absl::Now() + limit;
    while (NodeStatus().loads() > 0 && absl::Now() < deadline) {
    }
    EXPECT_EQ(NodeStatus().loads(), 0u);
  }

  void ExpectAll(const Loaded& loaded, v1::RecomputeReason reason) {
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.error_message();
    EXPECT_EQ(loaded.chunks.size(), kChunks);
    for (const v1::ChunkOutcome& chunk : loaded.chunks) {
      EXPECT_EQ(chunk.reason(), reason) << chunk.DebugString();
    }
  }
};

TEST_F(NodeServiceTest, LoadGivesBackWhatWasSaved) {
  StartAndSave();
  const Loaded loaded = Load(LoadContext(kChunks, kTarget));
  ExpectAll(loaded, v1::RECOMPUTE_REASON_NONE);
  EXPECT_GT(loaded.started.load_id(), 0u);
  EXPECT_EQ(loaded.started.num_chunks(), kChunks);
  EXPECT_EQ(loaded.events_after_summary, 0);
  EXPECT_EQ(loaded.summary.loaded_chunks(), kChunks);
  EXPECT_EQ(loaded.summary.loaded_prefix_tokens(), kChunks * kChunkTokens);
  const auto saved = Planes(kSource, kChunks);
  const auto read = Planes(kTarget, kChunks);
  double worst = 0;
  for (size_t i = 0; i < saved.size(); i += 2) {
    worst = std::max<double>(worst, std::abs(FromBf16(&saved[i]) - FromBf16(&read[i])));
  }
  EXPECT_GT(worst, 0.0);
  EXPECT_LT(worst, 0.75);  // half a finest step of a unit normal, with room for bf16
  const v1::StatusResponse status = NodeStatus();
  EXPECT_EQ(status.loaded_chunks(), kChunks);
  EXPECT_EQ(status.received_bytes(), loaded.summary.bytes());
  EXPECT_EQ(status.pools(), 1u);
  EXPECT_EQ(status.loads(), 0u);
  EXPECT_EQ(status.breaker(), v1::BREAKER_STATE_CLOSED);
  EXPECT_GT(status.link_bytes_per_s(), 0.0);
}

TEST_F(NodeServiceTest, KeepsRecords) {
  NodeService::Config config;
  config.records.path = testing::TempDir() + "records-of-node-" + std::to_string(getpid());
  config.records.program = "test";
  StartAndSave(/*lossless=*/false, {}, config);
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_NONE);
  EXPECT_EQ(NodeStatus().dropped_records(), 0u);
  Stop();
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(config.records.path)) {
    const absl::StatusOr<LoadRecord> record = ParseRecord(*ReadFile(entry.path()));
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_EQ(record->outcomes.size(), kChunks);
    EXPECT_EQ(record->program, "test");
    EXPECT_FALSE(Replay(*record).has_value());
    ++count;
  }
  EXPECT_EQ(count, 1u);
  std::filesystem::remove_all(config.records.path);
}

TEST_F(NodeServiceTest, LosslessIsBitExact) {
  StartAndSave(/*lossless=*/true);
  auto request = LoadContext(kChunks, kTarget);
  request.set_max_level(255);
  const Loaded loaded = Load(request);
  ExpectAll(loaded, v1::RECOMPUTE_REASON_NONE);
  for (const v1::ChunkOutcome& chunk : loaded.chunks) EXPECT_EQ(chunk.level(), 255u);
  EXPECT_EQ(Planes(kTarget, kChunks), Planes(kSource, kChunks));
}

TEST_F(NodeServiceTest, ExactLevelOrRecompute) {
  StartAndSave();
  for (const uint32_t level : {0, 2, 1}) {
    auto request = LoadContext(kChunks, kTarget);
    request.set_exact_level(level);
    const Loaded loaded = Load(request);
    ExpectAll(loaded, v1::RECOMPUTE_REASON_NONE);
    for (const v1::ChunkOutcome& chunk : loaded.chunks) EXPECT_EQ(chunk.level(), level);
  }
  auto request = LoadContext(kChunks, kTarget);
  request.set_exact_level(255);
  ExpectAll(Load(request), v1::RECOMPUTE_REASON_NOT_STORED);
}

// What one engine saved from rows of tokens, another loads into packed blocks.
TEST_F(NodeServiceTest, PackedPoolGetsTheSameElements) {
  StartAndSave(/*lossless=*/true);
  for (const Packing packing : kPackings) {
    const BlockLayout layout = PackedLayout(packing, layout_.geometry, kBlocks, kBlockTokens, 0);
    const ShmPool shm(layout.pool_bytes);
    ASSERT_TRUE(Register(PoolRequest(layout, shm)).ok());
    auto request = LoadContext(kChunks, kTarget);
    request.set_max_level(255);
    ExpectAll(Load(request), v1::RECOMPUTE_REASON_NONE);
    EXPECT_EQ(Planes(shm, layout, kTarget, kChunks), Planes(kSource, kChunks));
  }
}

TEST_F(NodeServiceTest, SkippedChunksAreNotTouched) {
  StartAndSave();
  const auto before = Planes(kTarget, 1);
  auto request = LoadContext(kChunks, kTarget);
  request.set_skip_tokens(kChunkTokens);
  request.set_block_ids(0, 0xffffffff);  // of a skipped chunk: not looked at
  const Loaded loaded = Load(request);
  ASSERT_EQ(loaded.chunks.size(), kChunks - 1);
  EXPECT_EQ(loaded.started.num_chunks(), kChunks - 1);
  EXPECT_EQ(loaded.summary.loaded_prefix_tokens(), kChunks * kChunkTokens);
  std::set<uint32_t> indexes;
  for (const v1::ChunkOutcome& chunk : loaded.chunks) indexes.insert(chunk.chunk_index());
  EXPECT_EQ(indexes, (std::set<uint32_t>{1, 2}));
  EXPECT_EQ(Planes(kTarget, 1), before);
}

TEST_F(NodeServiceTest, SkippedBlocksOfALoadedChunkAreNotTouched) {
  StartAndSave(/*lossless=*/true);
  const uint32_t skipped = kPerChunk + 1;
  const uint32_t rest = kChunks * kPerChunk - skipped;
  const auto before = Blocks(kTarget, skipped);
  auto request = LoadContext(kChunks, kTarget);
  request.set_max_level(255);
  request.set_skip_tokens(skipped * kBlockTokens);
  const Loaded loaded = Load(request);
  ASSERT_EQ(loaded.chunks.size(), kChunks - 1);
  EXPECT_EQ(loaded.summary.loaded_prefix_tokens(), kChunks * kChunkTokens);
  EXPECT_EQ(Blocks(kTarget, skipped), before);
  EXPECT_EQ(Blocks(kTarget + skipped, rest), Blocks(kSource + skipped, rest));
}

TEST_F(NodeServiceTest, UnknownContextIsNotStored) {
  Start();
  ASSERT_TRUE(Register(PoolRequest()).ok());
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_NOT_STORED);
}

TEST_F(NodeServiceTest, OtherSaltIsAnotherNamespace) {
  StartAndSave();
  auto request = LoadContext(kChunks, kTarget);
  request.mutable_identity()->set_salt("other");
  ExpectAll(Load(request), v1::RECOMPUTE_REASON_NOT_STORED);
}

TEST_F(NodeServiceTest, DeadServerIsRecomputeAndThenTheBreaker) {
  StartAndSave();
  const auto before = Planes(kTarget, kChunks);
  fake_->Kill();
  double last_ms = 0;
  bool open = false;
  for (int i = 0; i < 20 && !open; ++i) {
    const Loaded loaded = Load(LoadContext(kChunks, kTarget));
    ASSERT_EQ(loaded.chunks.size(), kChunks);
    for (const v1::ChunkOutcome& chunk : loaded.chunks) {
      EXPECT_NE(chunk.reason(), v1::RECOMPUTE_REASON_NONE);
    }
    open = loaded.chunks[0].reason() == v1::RECOMPUTE_REASON_BREAKER_OPEN;
    last_ms = loaded.summary.ms();
  }
  EXPECT_TRUE(open);
  EXPECT_LT(last_ms, 1000.0);
  EXPECT_EQ(Planes(kTarget, kChunks), before);
  EXPECT_EQ(NodeStatus().breaker(), v1::BREAKER_STATE_OPEN);
}

TEST_F(NodeServiceTest, SilentServerIsLate) {
  Start({.hold = true});
  ASSERT_TRUE(Register(PoolRequest()).ok());
  auto request = LoadContext(kChunks, kTarget);
  request.set_slo_ms(100);
  const Loaded loaded = Load(request);
  ASSERT_EQ(loaded.chunks.size(), kChunks);
  EXPECT_EQ(loaded.summary.loaded_chunks(), 0u);
  EXPECT_EQ(loaded.summary.recompute_chunks(), kChunks);
}

TEST_F(NodeServiceTest, DamagedChunksAreRecompute) {
  FakeStore::Faults faults;
  faults.tamper_frame = [](v1::FetchFrame& frame) {
    frame.mutable_payload()->back() ^= 1;
    frame.set_checksum(codec::Checksum(std::as_bytes(std::span(frame.payload()))));
  };
  StartAndSave(/*lossless=*/false, faults);
  const auto before = Planes(kSource, kChunks);
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_DAMAGED);
  EXPECT_EQ(Planes(kSource, kChunks), before);
}

TEST_F(NodeServiceTest, EngineThatCancelsFreesItsPlace) {
  NodeService::Config config;
  config.max_loads = 1;
  Start({.hold = true}, config);
  ASSERT_TRUE(Register(PoolRequest()).ok());
  grpc::ClientContext context;
  const auto reader = node_->Load(&context, LoadContext(kChunks, kTarget));
  v1::LoadEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(NodeStatus().loads(), 1u);
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_NODE_BUSY);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ExpectLoadsEnd(absl::Seconds(20));
}

TEST_F(NodeServiceTest, StoppingCancelsLoads) {
  Start({.hold = true});
  ASSERT_TRUE(Register(PoolRequest()).ok());
  grpc::ClientContext context;
  const auto reader = node_->Load(&context, LoadContext(kChunks, kTarget));
  v1::LoadEvent event;
  ASSERT_TRUE(reader->Read(&event));
  service_->Stop(absl::InfinitePast());
  ExpectAll(Finish(*reader), v1::RECOMPUTE_REASON_CANCELLED);
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_CANCELLED);
}

// Outcomes that are known together travel together.
TEST_F(NodeServiceTest, RefusedLoadIsAFewMessages) {
  constexpr uint32_t kManyChunks = 16 * 1024 + 1;
  NodeService::Config config;
  config.max_loads = 0;
  Start({}, config);
  const BlockLayout layout =
      HeadMajorLayout(SmallGeometry(1, 1, 2), kManyChunks * kPerChunk, kBlockTokens);
  const ShmPool shm(layout.pool_bytes);
  ASSERT_TRUE(Register(PoolRequest(layout, shm)).ok());
  const Loaded busy = Load(LoadContext(kManyChunks, 0));
  EXPECT_EQ(busy.outcome_events, 17);
  ASSERT_EQ(busy.chunks.size(), kManyChunks);
  for (uint32_t i = 0; i < kManyChunks; ++i) {
    ASSERT_EQ(busy.chunks[i].chunk_index(), i);
    ASSERT_EQ(busy.chunks[i].reason(), v1::RECOMPUTE_REASON_NODE_BUSY);
  }
  EXPECT_EQ(busy.summary.recompute_chunks(), kManyChunks);
}

TEST_F(NodeServiceTest, UnknownContextIsOneMessage) {
  Start();
  ASSERT_TRUE(Register(PoolRequest()).ok());
  EXPECT_EQ(Load(LoadContext(kChunks, kTarget)).outcome_events, 1);
}

// More outcomes than fit between the two ends, and an engine that reads none: the load is over all
// the same, and its slot is free.
TEST_F(NodeServiceTest, EngineThatDoesNotReadHoldsNoLoad) {
  constexpr uint32_t kManyChunks = 20'000;
  Start();
  fake_->Kill();
  const BlockLayout layout =
      HeadMajorLayout(SmallGeometry(1, 1, 2), kManyChunks * kPerChunk, kBlockTokens);
  const ShmPool shm(layout.pool_bytes);
  ASSERT_TRUE(Register(PoolRequest(layout, shm)).ok());
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 16);
  const auto engine = v1::Node::NewStub(
      grpc::CreateCustomChannel("unix:" + socket_, grpc::InsecureChannelCredentials(), arguments));
  auto request = LoadContext(kManyChunks, 0);
  request.set_slo_ms(100);
  grpc::ClientContext context;
  const auto reader = engine->Load(&context, request);
  v1::LoadEvent started;
  ASSERT_TRUE(reader->Read(&started));
  ExpectLoadsEnd(absl::Seconds(30));
}

TEST_F(NodeServiceTest, UnregisteringEndsLoads) {
  Start({.hold = true});
  ASSERT_TRUE(Register(PoolRequest()).ok());
  grpc::ClientContext context;
  const auto reader = node_->Load(&context, LoadContext(kChunks, kTarget));
  v1::LoadEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(Unregister().ok());
  ExpectAll(Finish(*reader), v1::RECOMPUTE_REASON_CANCELLED);
  EXPECT_EQ(Load(LoadContext(kChunks, kTarget)).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Unregister().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(NodeServiceTest, ReportComputedReachesTheLoad) {
  Start({.hold = true});
  ASSERT_TRUE(Register(PoolRequest()).ok());
  grpc::ClientContext context;
  const auto reader = node_->Load(&context, LoadContext(kChunks, kTarget));
  v1::LoadEvent event;
  ASSERT_TRUE(reader->Read(&event));
  v1::ReportComputedRequest report;
  report.set_load_id(event.started().load_id());
  report.set_computed_tokens(kChunks * kChunkTokens);
  grpc::ClientContext report_context;
  v1::ReportComputedResponse response;
  ASSERT_TRUE(node_->ReportComputed(&report_context, report, &response).ok());
  EXPECT_TRUE(response.running());
  fake_->Release();
  Finish(*reader);
  grpc::ClientContext late_context;
  ASSERT_TRUE(node_->ReportComputed(&late_context, report, &response).ok());
  EXPECT_FALSE(response.running());
}

// An engine that computes a chunk in no time is better off without the link, as soon as that and
// the link are known.
TEST_F(NodeServiceTest, ReportedPrefillsDeclineLoads) {
  StartAndSave();
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_NONE);
  ASSERT_TRUE(ReportPrefills(0.001).ok());
  ExpectAll(Load(LoadContext(kChunks, kTarget)), v1::RECOMPUTE_REASON_COMPUTE_FASTER);
  EXPECT_THAT(ReportPrefills(std::nan("")).error_message(), HasSubstr("timings[0].ms is nan"));
}

TEST_F(NodeServiceTest, TwoLoadsAtOnce) {
  StartAndSave();
  Loaded first;
  std::thread other([&] { first = Load(LoadContext(kChunks, kTarget)); });
  auto request = LoadContext(1, kTarget + kChunks * kPerChunk);
  const Loaded second = Load(request);
  other.join();
  ExpectAll(first, v1::RECOMPUTE_REASON_NONE);
  EXPECT_EQ(second.summary.loaded_chunks(), 1u);
  EXPECT_EQ(Planes(kTarget, 1), Planes(kTarget + kChunks * kPerChunk, 1));
}

TEST_F(NodeServiceTest, FullSaveQueueFailsAtOnce) {
  NodeService::Config config;
  config.saver.max_saves = 1;
  Start({.hold = true}, config);
  ASSERT_TRUE(Register(PoolRequest()).ok());
  grpc::ClientContext context;
  const auto reader = node_->Save(&context, Context<v1::SaveRequest>(kChunks, kSource));
  v1::SaveEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.state(), v1::SAVE_STATE_ACCEPTED);
  const auto events = Save(Context<v1::SaveRequest>(kChunks, kSource));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].state(), v1::SAVE_STATE_FAILED);
  EXPECT_THAT(events[0].message(), HasSubstr("limits.saves"));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(NodeServiceTest, ShortenedPoolEndsInRecompute) {
  StartAndSave();
  ASSERT_TRUE(shm_.Truncate(100));
  const Loaded loaded = Load(LoadContext(kChunks, kTarget));
  ASSERT_EQ(loaded.chunks.size(), kChunks);
  EXPECT_EQ(loaded.summary.loaded_chunks(), 0u);
  ASSERT_TRUE(shm_.Truncate(shm_.size()));
}

TEST_F(NodeServiceTest, BadLoadsAreNamed) {
  Start();
  ASSERT_TRUE(Register(PoolRequest()).ok());
  using Change = std::function<void(v1::LoadRequest&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"model", [](v1::LoadRequest& r) { r.mutable_identity()->clear_model(); }},
      {"chunk_tokens", [](v1::LoadRequest& r) { r.mutable_identity()->set_chunk_tokens(5); }},
      {"block_tokens", [](v1::LoadRequest& r) { r.mutable_identity()->set_chunk_tokens(24); }},
      {"number of block_ids is 5", [](v1::LoadRequest& r) { r.mutable_block_ids()->RemoveLast(); }},
      {"number of block_ids is 8",
       [](v1::LoadRequest& r) {
         r.add_block_ids(1);
         r.add_block_ids(2);
       }},
      {"block_ids[5] is 16", [](v1::LoadRequest& r) { r.set_block_ids(5, kBlocks); }},
      {"listed before", [](v1::LoadRequest& r) { r.set_block_ids(5, r.block_ids(0)); }},
      {"slo_ms", [](v1::LoadRequest& r) { r.set_slo_ms(kMaxSloMs + 1); }},
      {"skip_tokens is",
       [](v1::LoadRequest& r) { r.set_skip_tokens((kChunks + 1) * kChunkTokens); }},
      {"tail_tokens is", [](v1::LoadRequest& r) { r.set_tail_tokens(0xffffffff); }},
      {"not a multiple of the pool's block_tokens",
       [](v1::LoadRequest& r) { r.set_skip_tokens(1); }},
      {"max_level is 254", [](v1::LoadRequest& r) { r.set_max_level(254); }},
      {"exact_level is 8", [](v1::LoadRequest& r) { r.set_exact_level(8); }},
      {"max_level and exact_level",
       [](v1::LoadRequest& r) {
         r.set_max_level(1);
         r.set_exact_level(1);
       }},
      {"recompute",
       [](v1::LoadRequest& r) { r.set_recompute(static_cast<v1::RecomputeCapability>(9)); }},
      {"request_id", [](v1::LoadRequest& r) { r.set_request_id(std::string(65, 'r')); }},
      {"request_id", [](v1::LoadRequest& r) { r.set_request_id("a\nb=c"); }},
  };
  for (const auto& [field, change] : cases) {
    auto request = LoadContext(kChunks, kTarget);
    change(request);
    const Loaded loaded = Load(request);
    EXPECT_EQ(loaded.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(loaded.status.error_message(), HasSubstr(field));
  }
}

TEST_F(NodeServiceTest, BadPoolsAreNamed) {
  NodeService::Config config;
  config.max_pools = 1;
  Start({}, config);
  using Change = std::function<void(v1::RegisterPoolRequest&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"shm_name", [](v1::RegisterPoolRequest& r) { r.set_shm_name("/a/b"); }},
      {"pool_bytes", [](v1::RegisterPoolRequest& r) { r.set_pool_bytes(0); }},
      {"but /", [](v1::RegisterPoolRequest& r) { r.set_pool_bytes(r.pool_bytes() + 1); }},
      {"layouts", [](v1::RegisterPoolRequest& r) { r.mutable_layouts()->RemoveLast(); }},
      {"layouts[1].token_tile is 5",
       [](v1::RegisterPoolRequest& r) { r.mutable_layouts(1)->set_token_tile(5); }},
      {"geometry.planes[1].kind",
       [](v1::RegisterPoolRequest& r) { r.mutable_geometry()->mutable_planes(1)->clear_kind(); }},
      {"geometry.planes[0].element_type",
       [](v1::RegisterPoolRequest& r) {
         r.mutable_geometry()->mutable_planes(0)->set_element_type(
             static_cast<v1::ElementType>(99));
       }},
      {"rotary_table",
       [](v1::RegisterPoolRequest& r) {
         r.mutable_geometry()->mutable_planes(0)->set_rotary_table(0xffffffff);
       }},
      {"number of geometry.planes",
       [](v1::RegisterPoolRequest& r) {
         for (int i = 0; i < 2000; ++i) r.mutable_geometry()->add_planes();
       }},
  };
  for (const auto& [field, change] : cases) {
    auto request = PoolRequest();
    change(request);
    const grpc::Status status = Register(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(status.error_message(), HasSubstr(field));
  }
  ASSERT_TRUE(Register(PoolRequest()).ok());
  const grpc::Status second = Register(PoolRequest());
  EXPECT_EQ(second.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(second.error_message(), HasSubstr("limits.pools"));
}

}  // namespace
}  // namespace sluice::client
