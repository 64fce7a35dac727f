// The unary calls, puts, limits and the drain, over real gRPC.
#include <thread>

#include "tests/server/service_fixture.h"

namespace sluice::server {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

TEST_F(ServiceTest, Capabilities) {
  Start();
  v1::GetCapabilitiesResponse response;
  ASSERT_TRUE(stub_->GetCapabilities(Context().get(), {}, &response).ok());
  EXPECT_THAT(response.server(), HasSubstr("sluiced"));
  EXPECT_EQ(response.container_version(), codec::kContainerVersion);
  EXPECT_EQ(response.max_frame_bytes(), config_.limits.max_frame_bytes);
  EXPECT_EQ(response.max_profile_bytes(), config_.limits.max_profile_bytes);
  EXPECT_GE(response.max_message_bytes(), response.max_frame_bytes());
}

TEST_F(ServiceTest, PutAndLookup) {
  Start();
  const TestChunk chunk = MakeChunk({.lossless = true});
  ASSERT_TRUE(Put(chunk, 500).ok());
  v1::LookupRequest request;
  request.set_namespace_digest(Raw(chunk.id.namespace_digest));
  request.add_chunk_keys(Raw(MakeChunk({.index = 1}).id.key));
  request.add_chunk_keys(Raw(chunk.id.key));
  v1::LookupResponse response;
  ASSERT_TRUE(stub_->Lookup(Context().get(), request, &response).ok());
  ASSERT_EQ(response.chunks_size(), 2);
  EXPECT_FALSE(response.chunks(0).found());
  const v1::ChunkManifest& manifest = response.chunks(1);
  EXPECT_TRUE(manifest.found());
  EXPECT_EQ(manifest.total_bytes(), chunk.container.size());
  ASSERT_EQ(manifest.layers_size(), 3);
  EXPECT_EQ(manifest.layers(1).group_bytes(1), 200u);
  EXPECT_EQ(manifest.layers(2).level(), 255u);
  const v1::StatsResponse stats = Stats();
  EXPECT_EQ(stats.chunks(), 1u);
  EXPECT_EQ(stats.lookup_keys(), 2u);
  EXPECT_EQ(stats.lookup_found(), 1u);
  EXPECT_EQ(stats.committed_chunks(), 1u);
  EXPECT_EQ(stats.received_bytes(), chunk.profile.size() + chunk.container.size());
  EXPECT_EQ(stats.profiles(), 1u);
  EXPECT_EQ(stats.profile_bytes(), chunk.profile.size());
  EXPECT_EQ(stats.profile_quota_bytes(), config_.profile_quota_bytes);
}

TEST_F(ServiceTest, LookupInAnUnknownNamespaceFindsNothing) {
  Start();
  v1::LookupRequest request;
  request.set_namespace_digest(std::string(32, 'n'));
  request.add_chunk_keys(std::string(32, 'k'));
  v1::LookupResponse response;
  ASSERT_TRUE(stub_->Lookup(Context().get(), request, &response).ok());
  EXPECT_FALSE(response.chunks(0).found());
}

TEST_F(ServiceTest, FramesOutOfOrderNameTheExpectedOffset) {
  Start();
  const TestChunk chunk = MakeChunk({});
  v1::BeginPutResponse begun;
  ASSERT_TRUE(Begin(chunk, &begun).ok());
  const uint64_t id = begun.upload_id();
  uint64_t received = 0;
  ASSERT_TRUE(Send({MakeFrame(id, 0, chunk.container.substr(0, 100))}, &received).ok());
  EXPECT_EQ(received, 100u);
  EXPECT_THAT(Send({MakeFrame(id, 101, "x")}),
              GrpcStatusIs(StatusCode::INVALID_ARGUMENT, HasSubstr("100 expected")));
  v1::PutFrameRequest damaged = MakeFrame(id, 100, chunk.container.substr(100));
  damaged.set_checksum(damaged.checksum() ^ 1);
  EXPECT_THAT(Send({damaged}), GrpcStatusIs(StatusCode::DATA_LOSS, HasSubstr("checksum")));
  // Neither spoils the upload.
  ASSERT_TRUE(Send({MakeFrame(id, 100, chunk.container.substr(100))}, &received).ok());
  EXPECT_EQ(received, chunk.container.size());
  bool already_stored = true;
  ASSERT_TRUE(Commit(id, &already_stored).ok());
  EXPECT_FALSE(already_stored);
  ASSERT_TRUE(Commit(id, &already_stored).ok());  // a repeated commit
  EXPECT_TRUE(already_stored);
}

TEST_F(ServiceTest, DamagedContainerEndsTheUpload) {
  Start();
  TestChunk chunk = MakeChunk({});
  chunk.container.back() ^= 1;
  EXPECT_THAT(Put(chunk), GrpcStatusIs(StatusCode::DATA_LOSS, HasSubstr("segment")));
  EXPECT_EQ(Stats().uploads(), 0u);
  EXPECT_EQ(Stats().chunks(), 0u);
  EXPECT_EQ(Stats().damaged(), 1u);
  EXPECT_EQ(folder_.CountFiles("data/tmp"), 0u);
}

TEST_F(ServiceTest, UploadsExpire) {
  Config config;
  config.limits.max_uploads = 1;
  Start(config);
  v1::BeginPutResponse begun;
  ASSERT_TRUE(Begin(MakeChunk({}), &begun).ok());
  EXPECT_EQ(begun.upload_ttl_ms(), config.limits.upload_ttl_ms);
  v1::BeginPutResponse refused;
  EXPECT_THAT(Begin(MakeChunk({.index = 1}), &refused),
              GrpcStatusIs(StatusCode::RESOURCE_EXHAUSTED, HasSubstr("max_uploads")));
  clock_.Advance(absl::Milliseconds(config.limits.upload_ttl_ms));
  EXPECT_TRUE(Begin(MakeChunk({.index = 1}), &refused).ok());
  EXPECT_THAT(Send({MakeFrame(begun.upload_id(), 0, "x")}),
              GrpcStatusIs(StatusCode::NOT_FOUND, HasSubstr("upload")));
  EXPECT_EQ(Stats().uploads(), 1u);
  EXPECT_EQ(folder_.CountFiles("data/tmp"), 1u);
}

TEST_F(ServiceTest, UploadBytesAreLimited) {
  Config config;
  config.limits.max_upload_bytes = 4096;
  Start(config);
  v1::BeginPutRequest request = Announce(MakeChunk({}));
  request.set_total_bytes(4097);
  v1::BeginPutResponse begun;
  EXPECT_THAT(Begin(request, &begun),
              GrpcStatusIs(StatusCode::RESOURCE_EXHAUSTED, HasSubstr("max_upload_bytes")));
}

TEST_F(ServiceTest, PinTouchListDelete) {
  Start();
  const std::vector<TestChunk> context = MakeContext(1, 3, 100);
  for (const TestChunk& chunk : context) ASSERT_TRUE(Put(chunk).ok());
  clock_.Advance(absl::Seconds(7));
  v1::PinRequest pin;
  pin.mutable_selector()->set_namespace_digest(Raw(context[0].id.namespace_digest));
  pin.mutable_selector()->add_chunk_keys(Raw(context[0].id.key));
  pin.set_pinned(true);
  v1::PinResponse pinned;
  ASSERT_TRUE(stub_->Pin(Context().get(), pin, &pinned).ok());
  EXPECT_EQ(pinned.matched_chunks(), 1u);
  v1::TouchRequest touch;
  *touch.mutable_selector() = pin.selector();
  v1::TouchResponse touched;
  ASSERT_TRUE(stub_->Touch(Context().get(), touch, &touched).ok());
  EXPECT_EQ(touched.matched_chunks(), 1u);

  v1::ListChunksRequest list;
  list.set_namespace_digest(Raw(context[0].id.namespace_digest));
  list.set_page_size(2);
  v1::ListChunksResponse page;
  ASSERT_TRUE(stub_->ListChunks(Context().get(), list, &page).ok());
  ASSERT_EQ(page.chunks_size(), 2);
  list.set_after_key(page.next_after_key());
  v1::ListChunksResponse last;
  ASSERT_TRUE(stub_->ListChunks(Context().get(), list, &last).ok());
  ASSERT_EQ(last.chunks_size(), 1);
  EXPECT_TRUE(last.next_after_key().empty());
  page.MergeFrom(last);
  for (const v1::ChunkInfo& chunk : page.chunks()) {
    EXPECT_EQ(chunk.pinned(), chunk.chunk_key() == Raw(context[0].id.key));
    EXPECT_EQ(chunk.idle_ms(), chunk.pinned() ? 0u : 7000u);
    EXPECT_EQ(chunk.lossy_levels(), 1u);
  }

  v1::ListNamespacesResponse namespaces;
  ASSERT_TRUE(stub_->ListNamespaces(Context().get(), {}, &namespaces).ok());
  ASSERT_EQ(namespaces.namespaces_size(), 1);
  EXPECT_EQ(namespaces.namespaces(0).namespace_().model(), "test-model");
  EXPECT_EQ(namespaces.namespaces(0).chunks(), 3u);

  v1::DeleteRequest remove;
  remove.mutable_selector()->set_namespace_digest(Raw(context[0].id.namespace_digest));
  v1::DeleteResponse removed;
  ASSERT_TRUE(stub_->Delete(Context().get(), remove, &removed).ok());
  EXPECT_EQ(removed.deleted_chunks(), 2u);
  EXPECT_EQ(removed.pinned_chunks(), 1u);
  remove.mutable_selector()->set_namespace_digest(std::string(32, 'x'));
  EXPECT_THAT(stub_->Delete(Context().get(), remove, &removed),
              GrpcStatusIs(StatusCode::NOT_FOUND, HasSubstr("namespace")));
}

TEST_F(ServiceTest, BadFieldsAreNamed) {
  Start();
  v1::LookupRequest lookup;
  lookup.set_namespace_digest("short");
  v1::LookupResponse found;
  EXPECT_THAT(stub_->Lookup(Context().get(), lookup, &found),
              GrpcStatusIs(StatusCode::INVALID_ARGUMENT, HasSubstr("namespace_digest")));
  v1::BeginPutRequest put = Announce(MakeChunk({}));
  put.set_chunk_key("short");
  v1::BeginPutResponse begun;
  EXPECT_THAT(Begin(put, &begun),
              GrpcStatusIs(StatusCode::INVALID_ARGUMENT, HasSubstr("chunk_key")));
}

TEST_F(ServiceTest, TwoServersOnOnePortAreRefused) {
  Start();
  Config config;
  config.listen = {server_->addresses()[0]};
  const auto second = RpcServer::Start(config, service_.get());
  EXPECT_THAT(second.status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(config.listen[0])));
}

TEST_F(ServiceTest, DrainRefusesNewWorkAndEndsIdleLoads) {
  Start();
  const TestChunk chunk = MakeChunk({});
  ASSERT_TRUE(Put(chunk).ok());
  v1::BeginPutResponse begun;
  ASSERT_TRUE(Begin(MakeChunk({.index = 1}), &begun).ok());
  Load load = Open(chunk.id.namespace_digest);
  ASSERT_TRUE(load.stream->Write(MakeAsk(1, chunk.id.key, 0, 1)));
  v1::FetchFrame frame;
  ASSERT_TRUE(load.stream->Read(&frame));
  service_->StartDrain();
  v1::LookupRequest lookup;
  lookup.set_namespace_digest(Raw(chunk.id.namespace_digest));
  v1::LookupResponse found;
  EXPECT_THAT(stub_->Lookup(Context().get(), lookup, &found),
              GrpcStatusIs(StatusCode::UNAVAILABLE, HasSubstr("stopping")));
  // An upload that has begun may end.
  const TestChunk second = MakeChunk({.index = 1});
  EXPECT_TRUE(Send({MakeFrame(begun.upload_id(), 0, second.container)}).ok());
  EXPECT_TRUE(Commit(begun.upload_id()).ok());
  server_->Drain(absl::Now() + absl::Seconds(30), [](absl::Duration) {
    std::this_thread::yield();
    return true;
  });
  EXPECT_FALSE(load.stream->Read(&frame));
  EXPECT_FALSE(load.stream->Finish().ok());
}

}  // namespace
}  // namespace sluice::server
