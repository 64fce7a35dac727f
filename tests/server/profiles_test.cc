// Profiles over real gRPC: put, sent, refused, and what a stream may hold.
#include <unistd.h>

#include <cstdio>
#include <random>

#include "tests/server/service_fixture.h"

namespace sluice::server {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

std::string RandomBytes(size_t bytes) {
  std::mt19937_64 random(TestSeed());
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

uint64_t ResidentBytes() {
  unsigned long pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
  if (file != nullptr) std::fclose(file);
  return uint64_t{pages} * sysconf(_SC_PAGESIZE);
}

TEST_F(ServiceTest, ProfileIsAskedForOnce) {
  Start();
  const TestChunk chunk = MakeChunk({});
  v1::BeginPutResponse begun;
  ASSERT_TRUE(Begin(Announce(chunk), &begun).ok());
  EXPECT_TRUE(begun.profile_needed());
  ASSERT_TRUE(Put(chunk).ok());
  ASSERT_TRUE(Begin(Announce(MakeChunk({.index = 1})), &begun).ok());
  EXPECT_FALSE(begun.profile_needed());
  EXPECT_NE(begun.upload_id(), 0u);
  std::string got;
  ASSERT_TRUE(GetProfile(ProfileId(chunk.profile), &got).ok());
  EXPECT_EQ(got, chunk.profile);
  EXPECT_THAT(GetProfile(ProfileId("none"), &got),
              GrpcStatusIs(StatusCode::NOT_FOUND, HasSubstr("profile")));
}

TEST_F(ServiceTest, LargeProfileTravelsInFrames) {
  Start();
  const std::string profile = RandomBytes(100'000'001);
  bool already_stored = true;
  const auto frames = ProfileFrames(ProfileId(profile), profile);
  ASSERT_THAT(SendProfile(frames, &already_stored), GrpcStatusIs(StatusCode::OK, ""));
  EXPECT_FALSE(already_stored);
  ASSERT_THAT(SendProfile(frames, &already_stored), GrpcStatusIs(StatusCode::OK, ""));
  EXPECT_TRUE(already_stored);
  std::string got;
  size_t count = 0;
  ASSERT_TRUE(GetProfile(ProfileId(profile), &got, &count).ok());
  EXPECT_TRUE(got == profile);
  EXPECT_GT(count, 300u);
  EXPECT_EQ(Stats().profile_bytes(), profile.size());
}

TEST_F(ServiceTest, WrongProfileFramesAreRefused) {
  Config config;
  config.limits.max_profile_bytes = 5000;
  config.limits.max_frame_bytes = 4096;
  Start(config);
  const std::string profile = RandomBytes(5000);
  const Digest id = ProfileId(profile);
  const auto refuse = [&](auto change, StatusCode code, const char* what) {
    auto frames = ProfileFrames(id, profile, 2000);
    change(frames);
    EXPECT_THAT(SendProfile(frames), GrpcStatusIs(code, HasSubstr(what)));
    EXPECT_EQ(Stats().profiles(), 0u);
    EXPECT_EQ(folder_.CountFiles("data/tmp"), 0u);
  };
  using Frames = std::vector<v1::PutProfileRequest>;
  const auto invalid = StatusCode::INVALID_ARGUMENT;
  refuse([](Frames& f) { f.clear(); }, invalid, "frame");
  refuse([](Frames& f) { f[0].set_profile_id("x"); }, invalid, "profile_id");
  refuse([](Frames& f) { f[0].set_profile_id(std::string(32, 'x')); }, invalid, "profile_id");
  refuse([](Frames& f) { f[0].mutable_frame()->set_total_bytes(0); }, invalid, "total_bytes");
  refuse([](Frames& f) { f[0].mutable_frame()->set_total_bytes(4999); }, invalid, "total_bytes");
  refuse([](Frames& f) { f[0].mutable_frame()->set_total_bytes(5001); },
         StatusCode::RESOURCE_EXHAUSTED, "max_profile_bytes");
  refuse([](Frames& f) { f.pop_back(); }, invalid, "total_bytes");
  refuse([](Frames& f) { std::swap(f[1], f[2]); }, invalid, "offset");
  refuse([](Frames& f) { f[1].mutable_frame()->clear_payload(); }, invalid, "payload");
  refuse([](Frames& f) { f[1].mutable_frame()->set_checksum(1); }, StatusCode::DATA_LOSS,
         "checksum");
  refuse([&](Frames& f) { f = ProfileFrames(id, profile, 4097); }, invalid, "max_frame_bytes");
  EXPECT_TRUE(SendProfile(ProfileFrames(id, profile, 2000)).ok());
}

TEST_F(ServiceTest, BrokenOffProfileLeavesNothing) {
  Start();
  const std::string profile = RandomBytes(3'000'000);
  const auto frames = ProfileFrames(ProfileId(profile), profile);
  auto context = Context();
  v1::PutProfileResponse response;
  auto writer = stub_->PutProfile(context.get(), &response);
  ASSERT_TRUE(writer->Write(frames[0]));
  while (Stats().received_bytes() == 0) {
  }
  context->TryCancel();
  EXPECT_FALSE(writer->Finish().ok());
  server_.reset();  // waits for the call
  EXPECT_EQ(store_->Usage().profiles, 0u);
  EXPECT_EQ(folder_.CountFiles("data/tmp"), 0u);
  EXPECT_EQ(folder_.CountFiles("data/profiles"), 0u);
}

TEST_F(ServiceTest, DamagedProfileIsFoundWhenItIsSent) {
  Start();
  const TestChunk chunk = MakeChunk({.profile = RandomBytes(600'000)});
  ASSERT_TRUE(Put(chunk).ok());
  const Digest id = ProfileId(chunk.profile);
  std::string damaged = chunk.profile;
  damaged[300'000] ^= 1;
  WriteFile(folder_.path() + "/data/profiles/" + codec::DigestHex(id), damaged);
  std::string got;
  EXPECT_THAT(GetProfile(id, &got), GrpcStatusIs(StatusCode::DATA_LOSS, HasSubstr("damaged")));
  EXPECT_EQ(GetProfile(id, &got).error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(Stats().damaged(), 1u);
  EXPECT_EQ(folder_.CountFiles("data/quarantine"), 1u);
  ASSERT_TRUE(Put(MakeChunk({.index = 1, .profile = chunk.profile})).ok());
  ASSERT_TRUE(GetProfile(id, &got).ok());
  EXPECT_TRUE(got == chunk.profile);
}

TEST_F(ServiceTest, ProfileWithoutUseIsForgottenWithTime) {
  Start();
  ASSERT_TRUE(SendProfile(ProfileFrames(ProfileId("abc"), "abc")).ok());
  service_->Tick();
  EXPECT_EQ(Stats().profiles(), 1u);
  clock_.Advance(2 * kProfilePatience);
  service_->Tick();
  EXPECT_EQ(Stats().profiles(), 0u);
}

// Clients that ask for a profile and do not read it cost a frame each, not a profile each.
TEST_F(ServiceTest, UnreadProfilesDoNotPileUp) {
  constexpr int kStreams = 90;
  constexpr uint64_t kProfileBytes = 32 << 20;
  constexpr uint64_t kPerStream = 2 << 20;  // frames, windows of both sides and a thread
#ifdef __SANITIZE_THREAD__
  constexpr uint64_t kShadow = 4;  // what the sanitizer keeps of memory that is touched
#else
  constexpr uint64_t kShadow = 1;
#endif
  Start();
  const std::string profile = RandomBytes(kProfileBytes);
  const Digest id = ProfileId(profile);
  ASSERT_TRUE(SendProfile(ProfileFrames(id, profile)).ok());
  v1::GetProfileRequest request;
  request.set_profile_id(Raw(id));
  const uint64_t before = ResidentBytes();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::ProfileFrame>>> readers;
  for (int i = 0; i < kStreams; ++i) {
    contexts.push_back(Context());
    readers.push_back(stub_->GetProfile(contexts.back().get(), request));
    v1::ProfileFrame frame;
    ASSERT_TRUE(readers.back()->Read(&frame));
  }
  // Until nothing moves any more.
  for (uint64_t sent = 0, last = 1; sent != last; sent = Stats().sent_bytes()) {
    last = Stats().sent_bytes();
  }
  EXPECT_LT(ResidentBytes() - before, kStreams * kPerStream * kShadow);
  EXPECT_LT(Stats().sent_bytes(), kStreams * kPerStream);
  clock_.Advance(absl::Milliseconds(config_.limits.upload_ttl_ms + 1));
  service_->Tick();  // ends the ones that do not read
  for (auto& reader : readers) {
    v1::ProfileFrame frame;
    while (reader->Read(&frame)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  }
}

}  // namespace
}  // namespace sluice::server
