// Fetch streams over real gRPC.
#include <thread>

#include "tests/server/service_fixture.h"

namespace sluice::server {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

class FetchTest : public ServiceTest {};

TEST_F(FetchTest, EveryRunOfLayers) {
  Config config;
  config.limits.max_frame_bytes = 4096;
  Start(config);
  const TestChunk chunk = MakeChunk({.segment_bytes = {3000, 0, 5000}, .groups = 3});
  ASSERT_TRUE(Put(chunk, 4096).ok());
  const codec::ChunkHeader header = chunk.header();
  Load load = Open(chunk.id.namespace_digest);
  std::map<uint32_t, std::string> expected;
  uint32_t id = 0;
  for (bool with_header : {false, true}) {
    for (uint32_t first = 0; first < 3; ++first) {
      for (uint32_t count = 1; first + count <= 3; ++count) {
        ASSERT_TRUE(load.stream->Write(
            MakeAsk(++id, chunk.id.key, first, count, v1::FETCH_CLASS_REFINEMENT, with_header)));
        const uint64_t begin = header.LayerOffset(first);
        uint64_t bytes = 0;
        for (uint32_t i = first; i < first + count; ++i) bytes += header.layers[i].bytes();
        expected[id] = (with_header ? chunk.container.substr(0, header.header_bytes) : "") +
                       chunk.container.substr(begin, bytes);
      }
    }
  }
  grpc::Status status;
  const auto answers = Collect(load, &status);
  EXPECT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(answers.size(), expected.size());
  for (const auto& [ask, answer] : answers) {
    EXPECT_EQ(answer.result, v1::FETCH_OK) << ask << answer.message;
    EXPECT_EQ(answer.bytes, expected[ask]) << ask;
  }
  EXPECT_EQ(Stats().cache_misses(), 1u);
}

TEST_F(FetchTest, WithoutCacheToo) {
  Config config;
  config.cache_bytes = 0;
  Start(config);
  const TestChunk chunk = MakeChunk({.segment_bytes = {30000, 50000}});
  ASSERT_TRUE(Put(chunk).ok());
  Load load = Open(chunk.id.namespace_digest);
  load.stream->Write(MakeAsk(1, chunk.id.key, 0, 2, v1::FETCH_CLASS_BASE, true));
  EXPECT_EQ(Collect(load)[1].bytes, chunk.container);
}

TEST_F(FetchTest, MissingThings) {
  Start();
  const TestChunk chunk = MakeChunk({});
  ASSERT_TRUE(Put(chunk).ok());
  Load load = Open(chunk.id.namespace_digest);
  load.stream->Write(MakeAsk(1, MakeChunk({.index = 9}).id.key, 0, 1));
  load.stream->Write(MakeAsk(2, chunk.id.key, 2, 2));
  load.stream->Write(MakeAsk(3, chunk.id.key, 4000000000u, 1));
  auto answers = Collect(load);
  for (uint32_t id : {1, 2, 3}) {
    EXPECT_EQ(answers[id].result, v1::FETCH_NOT_FOUND);
    EXPECT_FALSE(answers[id].message.empty());
  }
  Load unknown = Open({});
  unknown.stream->Write(MakeAsk(1, chunk.id.key, 0, 1));
  EXPECT_EQ(Collect(unknown)[1].result, v1::FETCH_NOT_FOUND);
}

TEST_F(FetchTest, DamagedBytesAreNeverSent) {
  for (bool cached : {true, false}) {
    Config config;
    if (!cached) config.cache_bytes = 0;
    Start(config);
    const TestChunk chunk = MakeChunk({});
    ASSERT_TRUE(Put(chunk).ok());
    const auto path = folder_.Find(".chunk").at(0);
    std::string bytes = ReadFile(path);
    bytes[bytes.size() - 700] ^= 1;  // layer 1
    WriteFile(path, bytes);
    Load load = Open(chunk.id.namespace_digest);
    load.stream->Write(MakeAsk(1, chunk.id.key, 1, 1));
    auto answers = Collect(load);
    EXPECT_EQ(answers[1].result, v1::FETCH_DAMAGED);
    EXPECT_EQ(answers[1].bytes, "");
    EXPECT_EQ(Stats().damaged(), 1u);
    EXPECT_EQ(Stats().chunks(), 0u);
    EXPECT_EQ(folder_.CountFiles("data/quarantine"), cached ? 1u : 2u);
    ASSERT_TRUE(Put(chunk).ok());  // what is lost can be put again
    Load again = Open(chunk.id.namespace_digest);
    again.stream->Write(MakeAsk(1, chunk.id.key, 0, 3, v1::FETCH_CLASS_BASE, true));
    EXPECT_EQ(Collect(again)[1].bytes, chunk.container);
    ASSERT_THAT(store_->Delete({chunk.id.namespace_digest, {}, {}}, true).status(), IsOk());
    server_.reset();
    store_.reset();
  }
}

TEST_F(FetchTest, StreamMustBeginWithOpen) {
  Start();
  auto context = Context();
  auto stream = stub_->Fetch(context.get());
  stream->Write(MakeAsk(1, {}, 0, 1));
  EXPECT_THAT(stream->Finish(), GrpcStatusIs(StatusCode::INVALID_ARGUMENT, HasSubstr("open")));
}

TEST_F(FetchTest, BadAskEndsTheStream) {
  Start();
  Load load = Open({});
  load.stream->Write(MakeAsk(0, {}, 0, 1));
  grpc::Status status;
  Collect(load, &status);
  EXPECT_THAT(status, GrpcStatusIs(StatusCode::INVALID_ARGUMENT, HasSubstr("ask_id")));
}

TEST_F(FetchTest, StreamsAreLimited) {
  Config config;
  config.limits.max_streams = 1;
  Start(config);
  const TestChunk chunk = MakeChunk({});
  Load first = Open({});
  first.stream->Write(MakeAsk(1, chunk.id.key, 0, 1));
  v1::FetchFrame frame;
  ASSERT_TRUE(first.stream->Read(&frame));  // so it is open at the server
  Load second = Open({});
  grpc::Status status;
  Collect(second, &status);
  EXPECT_THAT(status, GrpcStatusIs(StatusCode::RESOURCE_EXHAUSTED, HasSubstr("max_streams")));
  grpc::Status end;
  Collect(first, &end);
  EXPECT_TRUE(end.ok());
}

TEST_F(FetchTest, SlowReaderHoldsNobodyUpAndLittleMemory) {
  Config config;
  config.limits.max_frame_bytes = 64 << 10;
  Start(config);
  const TestChunk chunk = MakeChunk({.segment_bytes = {8 << 20}, .groups = 4});
  ASSERT_TRUE(Put(chunk, 64 << 10).ok());
  // Eight loads ask for 32 MiB each and read nothing.
  std::vector<Load> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(Open(chunk.id.namespace_digest));
    slow.back().stream->Write(MakeAsk(1, chunk.id.key, 0, 1));
    v1::FetchFrame frame;
    ASSERT_TRUE(slow.back().stream->Read(&frame));
  }
  Load fast = Open(chunk.id.namespace_digest);
  fast.stream->Write(MakeAsk(1, chunk.id.key, 0, 1));
  EXPECT_EQ(Collect(fast)[1].bytes.size(), size_t{32} << 20);
  // Both ends of the streams are in this process: windows and frames, but not eight chunks.
  const v1::StatsResponse stats = Stats();
  EXPECT_LT(stats.sent_bytes(), uint64_t{40} << 20);
  EXPECT_EQ(stats.cache_bytes(), chunk.container.size());
  for (Load& load : slow) load.context->TryCancel();
  for (Load& load : slow) {
    v1::FetchFrame frame;
    while (load.stream->Read(&frame)) {
    }
    EXPECT_EQ(load.stream->Finish().error_code(), StatusCode::CANCELLED);
  }
}

TEST_F(FetchTest, ManyClientsAtOnce) {
  Start();
  const std::vector<TestChunk> context = MakeContext(1, 8, 20000);
  for (const TestChunk& chunk : context) ASSERT_TRUE(Put(chunk).ok());
  std::vector<std::thread> clients;
  for (int c = 0; c < 16; ++c) {
    clients.emplace_back([&] {
      Load load = Open(context[0].id.namespace_digest);
      for (uint32_t i = 0; i < context.size(); ++i) {
        load.stream->Write(MakeAsk(i + 1, context[i].id.key, 0, 1, v1::FETCH_CLASS_BASE, true));
      }
      auto answers = Collect(load);
      for (uint32_t i = 0; i < context.size(); ++i) {
        EXPECT_EQ(answers[i + 1].bytes, context[i].container);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(Stats().cache_misses(), context.size());
  EXPECT_EQ(Stats().cache_hits(), 15 * context.size());
}

}  // namespace
}  // namespace sluice::server
