#include "client/remote_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "client/remote_admin.h"
#include "tests/client/fake_store.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

codec::Digest DigestOf(uint8_t first) {
  codec::Digest digest = {};
  digest[0] = first;
  return digest;
}

std::string Key(const codec::Digest& digest) { return std::string(codec::DigestBytes(digest)); }

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

// A container with two layers of two groups; the store does not look into segments.
std::string MakeContainer(const codec::Digest& key, size_t segment_bytes) {
  codec::ChunkHeader header;
  header.chunk_key = key;
  header.num_tokens = 16;
  std::string body;
  for (codec::Level level = 0; level < 2; ++level) {
    codec::LayerEntry layer{.level = level, .mean_error = 0.1f, .max_error = 0.2f, .segments = {}};
    for (int group = 0; group < 2; ++group) {
      const std::string segment(segment_bytes, static_cast<char>('a' + 2 * level + group));
      layer.segments.push_back({.bytes = static_cast<uint32_t>(segment_bytes),
                                .checksum = codec::Checksum(std::as_bytes(std::span(segment)))});
      body += segment;
    }
    header.layers.push_back(std::move(layer));
  }
  return codec::SerializeChunkHeader(header) + body;
}

class RemoteStoreTest : public ::testing::Test {
 protected:
  void Start(FakeStore::Faults faults = {}) {
    fake_ = std::make_unique<FakeStore>(std::move(faults));
    store_ = RemoteStore::Create(fake_->address());
  }

  void AddChunk(uint8_t key, size_t segment_bytes = 100) {
    fake_->AddChunk(Key(DigestOf(key)), MakeContainer(DigestOf(key), segment_bytes));
  }

  std::unique_ptr<FetchStream> OpenFetch(absl::Time deadline = Soon()) {
    auto stream = store_->OpenFetch(DigestOf(0), "load", deadline);
    EXPECT_TRUE(stream.ok()) << stream.status();
    return std::move(*stream);
  }

  // The status of the first frame of an ask for both layers of chunk 1.
  absl::Status FirstFrame() {
    AddChunk(1);
    const auto stream = OpenFetch();
    EXPECT_TRUE(stream->Ask({.ask_id = 1, .chunk_key = DigestOf(1), .num_layers = 2}).ok());
    const auto frame = stream->Next();
    return frame.ok() ? frame->status : frame.status();
  }

  std::unique_ptr<FakeStore> fake_;
  std::unique_ptr<RemoteStore> store_;
};

TEST_F(RemoteStoreTest, LookupSplitsRequestsAndKeepsOrder) {
  Start();
  AddChunk(3);
  std::vector<codec::Digest> keys;
  for (int i = 0; i < 40; ++i) keys.push_back(DigestOf(static_cast<uint8_t>(i)));
  const auto manifests = store_->Lookup(DigestOf(0), keys, Soon(), nullptr);
  ASSERT_TRUE(manifests.ok()) << manifests.status();
  ASSERT_EQ(manifests->size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ((*manifests)[i].found, i == 3);
  EXPECT_EQ(fake_->num_lookups(), 3);  // the fake takes 16 keys at a time
  const ChunkManifest& found = (*manifests)[3];
  EXPECT_EQ(found.num_tokens, 16u);
  ASSERT_EQ(found.layers.size(), 2u);
  EXPECT_EQ(found.layers[1].bytes, 200u);
  EXPECT_EQ(found.total_bytes, found.header_bytes + 400);
}

TEST_F(RemoteStoreTest, ManifestsThatDoNotAddUpAreRefused) {
  using Tamper = std::function<void(v1::ChunkManifest&)>;
  const std::vector<std::pair<std::string, Tamper>> cases = {
      {"total_bytes", [](v1::ChunkManifest& m) { m.set_total_bytes(7); }},
      {"num_tokens", [](v1::ChunkManifest& m) { m.set_num_tokens(1 << 30); }},
      {"header_bytes", [](v1::ChunkManifest& m) { m.set_header_bytes(0xffffffff); }},
      {"number of layers", [](v1::ChunkManifest& m) { m.clear_layers(); }},
      {"number of groups", [](v1::ChunkManifest& m) { m.mutable_layers(1)->add_group_bytes(1); }},
      {"level of layer 1", [](v1::ChunkManifest& m) { m.mutable_layers(1)->set_level(9); }},
      {"mean_error", [](v1::ChunkManifest& m) { m.mutable_layers(0)->set_mean_error(-1); }},
      {"group_bytes",
       [](v1::ChunkManifest& m) { m.mutable_layers(0)->set_group_bytes(0, 0x7fffffff); }},
      {"before the last", [](v1::ChunkManifest& m) { m.mutable_layers(0)->set_level(255); }},
  };
  for (const auto& [field, tamper] : cases) {
    FakeStore::Faults faults;
    faults.tamper_lookup = [tamper = tamper](v1::LookupResponse& r) {
      tamper(*r.mutable_chunks(0));
    };
    Start(faults);
    AddChunk(1);
    const auto manifests = store_->Lookup(DigestOf(0), std::vector{DigestOf(1)}, Soon(), nullptr);
    EXPECT_EQ(manifests.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(manifests.status().message()), HasSubstr(field));
  }
}

TEST_F(RemoteStoreTest, LookupWithTooFewAnswersIsRefused) {
  FakeStore::Faults faults;
  faults.tamper_lookup = [](v1::LookupResponse& r) { r.clear_chunks(); };
  Start(faults);
  const auto manifests = store_->Lookup(DigestOf(0), std::vector{DigestOf(1)}, Soon(), nullptr);
  EXPECT_EQ(manifests.status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RemoteStoreTest, LookupCanBeCancelled) {
  FakeStore::Faults faults;
  faults.hold = true;
  Start(faults);
  int polls = 0;
  const auto manifests = store_->Lookup(DigestOf(0), std::vector{DigestOf(1)}, Soon(),
                                        [&polls] { return ++polls == 3; });
  EXPECT_EQ(manifests.status().code(), absl::StatusCode::kCancelled);
}

TEST_F(RemoteStoreTest, FetchReturnsTheBytesOfTheLayers) {
  FakeStore::Faults faults;
  faults.frame_bytes = 64;
  Start(faults);
  AddChunk(1);
  const std::string container = fake_->Container(Key(DigestOf(1)));
  const auto stream = OpenFetch();
  const FetchAsk ask{.ask_id = 7,
                     .chunk_key = DigestOf(1),
                     .with_header = true,
                     .first_layer = 0,
                     .num_layers = 2};
  ASSERT_TRUE(stream->Ask(ask).ok());
  std::string received;
  bool last = false;
  while (!last) {
    const auto frame = stream->Next();
    ASSERT_TRUE(frame.ok()) << frame.status();
    ASSERT_TRUE(frame->status.ok()) << frame->status;
    EXPECT_EQ(frame->ask_id, 7u);
    EXPECT_EQ(frame->offset, received.size());
    received += frame->payload;
    last = frame->last;
  }
  EXPECT_EQ(received, container);
}

TEST_F(RemoteStoreTest, MissingChunkFailsItsAskAndNotTheStream) {
  Start();
  AddChunk(1);
  const auto stream = OpenFetch();
  ASSERT_TRUE(stream->Ask({.ask_id = 1, .chunk_key = DigestOf(9)}).ok());
  ASSERT_TRUE(stream->Ask({.ask_id = 2, .chunk_key = DigestOf(1)}).ok());
  const auto missing = stream->Next();
  ASSERT_TRUE(missing.ok());
  EXPECT_EQ(missing->status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(missing->last);
  const auto present = stream->Next();
  ASSERT_TRUE(present.ok());
  EXPECT_TRUE(present->status.ok());
}

TEST_F(RemoteStoreTest, DamagedFrameIsDataLoss) {
  FakeStore::Faults faults;
  faults.tamper_frame = [](v1::FetchFrame& f) { (*f.mutable_payload())[3] ^= 1; };
  Start(faults);
  EXPECT_EQ(FirstFrame().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RemoteStoreTest, OversizedFrameIsDataLoss) {
  FakeStore::Faults faults;
  faults.tamper_frame = [](v1::FetchFrame& f) {
    f.set_payload(std::string(kMaxReceivedFrameBytes + 1, 'x'));
  };
  Start(faults);
  const absl::Status status = FirstFrame();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("frame of"));
}

TEST_F(RemoteStoreTest, UnknownResultIsAnError) {
  FakeStore::Faults faults;
  faults.tamper_frame = [](v1::FetchFrame& f) {
    f.set_result(static_cast<v1::FetchResult>(77));
    f.set_message(std::string(100000, 'x'));
  };
  Start(faults);
  const absl::Status status = FirstFrame();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_LT(status.message().size(), 2000u);
}

TEST_F(RemoteStoreTest, CloseEndsNext) {
  FakeStore::Faults faults;
  faults.hold = true;
  Start(faults);
  AddChunk(1);
  const auto stream = OpenFetch();
  ASSERT_TRUE(stream->Ask({.ask_id = 1, .chunk_key = DigestOf(1)}).ok());
  std::thread closer([&] { stream->Close(); });
  const auto frame = stream->Next();
  closer.join();
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kCancelled);
}

TEST_F(RemoteStoreTest, DeadlineEndsASilentStream) {
  FakeStore::Faults faults;
  faults.hold = true;
  Start(faults);
  AddChunk(1);
  const auto stream = OpenFetch(absl::Now() + absl::Milliseconds(50));
  ASSERT_TRUE(stream->Ask({.ask_id = 1, .chunk_key = DigestOf(1)}).ok());
  EXPECT_EQ(stream->Next().status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(RemoteStoreTest, ServerKilledInMidStreamIsUnavailable) {
  FakeStore::Faults faults;
  faults.hold = true;
  Start(faults);
  AddChunk(1);
  const auto stream = OpenFetch();
  ASSERT_TRUE(stream->Ask({.ask_id = 1, .chunk_key = DigestOf(1)}).ok());
  std::thread killer([&] { fake_->Kill(); });
  const absl::Status status = stream->Next().status();
  killer.join();
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsCancelled(status)) << status;
}

TEST_F(RemoteStoreTest, DeadServerFailsAtOnce) {
  Start();
  fake_->Kill();
  const absl::Time start = absl::Now();
  const auto manifests = store_->Lookup(DigestOf(0), std::vector{DigestOf(1)}, Soon(), nullptr);
  EXPECT_EQ(manifests.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(manifests.status().message()), HasSubstr(store_->address()));
  const auto stream = store_->OpenFetch(DigestOf(0), "", Soon());
  EXPECT_FALSE(stream.ok() && (*stream)->Next().ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

class PutTest : public RemoteStoreTest {
 protected:
  static codec::NamespaceDescriptor Descriptor() {
    codec::NamespaceDescriptor descriptor;
    descriptor.model = "m";
    descriptor.profile_id = codec::Sha256(std::as_bytes(std::span(kProfile)));
    return descriptor;
  }

  absl::StatusOr<PutResult> Put(const std::string& container) {
    const auto descriptor = Descriptor();
    return PutWithProfile(
        *store_, {descriptor, DigestOf(1), DigestOf(2), container},
        []() -> std::string_view { return kProfile; }, {.chunk = absl::Seconds(20)}, nullptr);
  }

  static constexpr std::string_view kProfile = "profile";
};

TEST_F(PutTest, SendsTheProfileOnlyWhenAsked) {
  Start();
  const std::string container = MakeContainer(DigestOf(1), 1'000'000);  // several frames
  const auto first = Put(container);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->already_stored);
  EXPECT_EQ(first->sent_bytes, container.size());
  EXPECT_EQ(fake_->Container(Key(DigestOf(1))), container);
  EXPECT_EQ(fake_->StoredProfile(Key(Descriptor().profile_id)), kProfile);
  EXPECT_EQ(fake_->last_put().parent_key(), Key(DigestOf(2)));
  const auto second = Put(container);
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(second->already_stored);
  EXPECT_EQ(second->sent_bytes, 0u);
}

TEST_F(PutTest, ProfileThatIsForgottenIsSentAgainButNotForEver) {
  FakeStore::Faults faults;
  faults.forget_profiles = 1;
  Start(faults);
  EXPECT_TRUE(Put(MakeContainer(DigestOf(1), 50)).ok());
  faults.forget_profiles = 1000;
  Start(faults);
  EXPECT_EQ(Put(MakeContainer(DigestOf(1), 50)).status().code(), absl::StatusCode::kAborted);
}

TEST_F(PutTest, MissingProfileIsTheCallersError) {
  Start();
  const auto descriptor = Descriptor();
  const std::string container = MakeContainer(DigestOf(1), 50);
  const auto put = PutWithProfile(
      *store_, {descriptor, DigestOf(1), std::nullopt, container},
      [] { return absl::StatusOr<std::string_view>(absl::NotFoundError("no profile here")); },
      {.chunk = absl::Seconds(20)}, nullptr);
  EXPECT_THAT(std::string(put.status().message()), HasSubstr("no profile here"));
}

TEST_F(PutTest, TooLargeProfileIsNotSent) {
  FakeStore::Faults faults;
  faults.tamper_capabilities = [](v1::GetCapabilitiesResponse& r) { r.set_max_profile_bytes(5); };
  Start(faults);
  const auto put = Put(MakeContainer(DigestOf(1), 50));
  EXPECT_EQ(put.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(put.status().message()), HasSubstr("at most 5"));
}

class ProfileTest : public RemoteStoreTest {
 protected:
  absl::StatusOr<std::string> Get(absl::Time deadline = Soon(),
                                  const std::function<bool()>& cancelled = nullptr) {
    return store_->GetProfile(id_, 1 << 20, deadline, cancelled);
  }
  void StartWith(FakeStore::Faults faults) {
    faults.profile_frame_bytes = 1000;
    Start(std::move(faults));
    fake_->AddProfile(profile_);
  }

  const std::string profile_ = std::string(10'500, 'p');
  const codec::Digest id_ = codec::Sha256(std::as_bytes(std::span(profile_)));
};

TEST_F(ProfileTest, ComesInFrames) {
  StartWith({});
  const auto profile = Get();
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(*profile, profile_);
  EXPECT_EQ(store_->GetProfile(DigestOf(1), 1 << 20, Soon(), nullptr).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->GetProfile(id_, 10'499, Soon(), nullptr).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ProfileTest, EveryLieIsFound) {
  using Frame = v1::ProfileFrame;
  const std::function<void(Frame&)> lies[] = {
      [](Frame& f) { f.set_checksum(f.checksum() + 1); },
      [](Frame& f) { f.set_offset(f.offset() + 1); },
      [](Frame& f) { f.clear_payload(); },
      [](Frame& f) { f.set_total_bytes(f.offset() + 1); },
      [](Frame& f) { f.set_total_bytes(20'000 + f.offset()); },
      [](Frame& f) {  // right in itself
        f.mutable_payload()->back() = 'q';
        f.set_checksum(codec::Checksum(std::as_bytes(std::span(f.payload()))));
      },
  };
  for (const auto& lie : lies) {
    StartWith({.tamper_profile = lie});
    EXPECT_EQ(Get().status().code(), absl::StatusCode::kDataLoss) << Get().status();
  }
}

TEST_F(ProfileTest, DeadlineAndCancellationReachTheWait) {
  StartWith({.hold = true});
  EXPECT_EQ(Get(absl::Now() + absl::Milliseconds(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Get(Soon(), [] { return true; }).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(PutTest, ServersLimitOfFramesIsKept) {
  FakeStore::Faults faults;
  faults.tamper_capabilities = [](v1::GetCapabilitiesResponse& r) { r.set_max_frame_bytes(1000); };
  Start(faults);
  const std::string container = MakeContainer(DigestOf(1), 5000);
  ASSERT_TRUE(Put(container).ok());
  EXPECT_EQ(fake_->Container(Key(DigestOf(1))), container);
}

TEST_F(PutTest, LostBytesAreNotCommitted) {
  FakeStore::Faults faults;
  faults.tamper_received = [](v1::PutFrameResponse& r) { r.set_received_bytes(1); };
  Start(faults);
  EXPECT_EQ(Put(MakeContainer(DigestOf(1), 50)).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(fake_->num_puts(), 0);
}

TEST(RemoteAdminTest, ChecksWhatTheServerSays) {
  FakeStore fake;
  const auto admin = RemoteAdmin::Create(fake.address());
  EXPECT_EQ(admin->ListNamespaces(Soon()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(admin->Stats(Soon()).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_FALSE(admin->Ping(Soon()).ok());  // the fake has no health service
  fake.Kill();
  EXPECT_EQ(admin->Ping(Soon()).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::client
