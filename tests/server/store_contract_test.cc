// What every Store must do, run against each implementation.
#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/file_store.h"
#include "server/memory_store.h"
#include "tests/server/testing.h"

namespace sluice::server {
namespace {

using testing::HasSubstr;

constexpr uint64_t kQuota = 1 << 20;

struct MemoryFactory {
  std::unique_ptr<Store> Make(uint64_t quota, Clock clock) {
    return std::make_unique<MemoryStore>(quota, 4, std::move(clock));
  }
};

struct FileFactory {
  TestFolder folder;

  std::unique_ptr<Store> Make(uint64_t quota, Clock clock) {
    FileStoreOptions options;
    options.data_dir = folder.path() + "/data";
    options.quota_bytes = quota;
    options.max_namespaces = 4;
    options.clock = std::move(clock);
    auto store = FileStore::Open(std::move(options));
    EXPECT_THAT(store.status(), IsOk());
    return *std::move(store);
  }
};

template <typename Factory>
class StoreContract : public testing::Test {
 protected:
  Store& Make(uint64_t quota = kQuota) {
    store_ = factory_.Make(quota, clock_.clock());
    return *store_;
  }

  FakeClock clock_;
  Factory factory_;
  std::unique_ptr<Store> store_;
};

using Factories = testing::Types<MemoryFactory, FileFactory>;
TYPED_TEST_SUITE(StoreContract, Factories);

TYPED_TEST(StoreContract, PutThenRead) {
  Store& store = this->Make();
  const TestChunk chunk = MakeChunk({});
  EXPECT_FALSE(IsStored(store, chunk));
  EXPECT_THAT(store.Open(chunk.id).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("chunk")));
  ASSERT_EQ(*PutChunk(store, chunk, 1), CommitResult::kStored);
  EXPECT_TRUE(IsStored(store, chunk));
  EXPECT_EQ(ReadChunk(store, chunk), chunk.container);
  EXPECT_EQ(*PutChunk(store, chunk), CommitResult::kAlreadyStored);
  EXPECT_EQ(ReadProfile(store, chunk.descriptor.profile_id), chunk.profile);
  const StoreUsage usage = store.Usage();
  EXPECT_EQ(usage.chunks, 1u);
  EXPECT_EQ(usage.namespaces, 1u);
  EXPECT_EQ(usage.bytes, chunk.container.size());
  EXPECT_EQ(usage.reserved_bytes, 0u);
}

TYPED_TEST(StoreContract, NothingIsVisibleBeforeCommit) {
  Store& store = this->Make();
  const TestChunk chunk = MakeChunk({});
  {
    auto begun = BeginChunk(store, chunk);
    ASSERT_THAT(begun.status(), IsOk());
    ASSERT_THAT(begun->session->Append(std::as_bytes(std::span(chunk.container))), IsOk());
    EXPECT_FALSE(IsStored(store, chunk));
    EXPECT_TRUE(store.ListNamespaces().empty());
    EXPECT_EQ(store.Usage().reserved_bytes, chunk.container.size());
  }
  EXPECT_EQ(store.Usage().reserved_bytes, 0u);
  EXPECT_FALSE(IsStored(store, chunk));
}

TYPED_TEST(StoreContract, ProfileIsNeededOnce) {
  Store& store = this->Make();
  const TestChunk chunk = MakeChunk({});
  EXPECT_TRUE(store.BeginPut(chunk.announcement())->profile_needed);
  EXPECT_EQ(*PutProfile(store, chunk.profile, 3), CommitResult::kStored);
  EXPECT_EQ(*PutProfile(store, chunk.profile), CommitResult::kAlreadyStored);
  ASSERT_THAT(PutChunk(store, chunk).status(), IsOk());
  EXPECT_NE(store.BeginPut(MakeChunk({.index = 1}).announcement())->session, nullptr);
  EXPECT_EQ(store.ListNamespaces().at(0).profile_bytes, chunk.profile.size());
}

TYPED_TEST(StoreContract, WrongProfilesAreRefused) {
  Store& store = this->Make();
  const std::string profile = MakeChunk({}).profile;
  const auto put = [&](const std::string& bytes) {
    auto begun = store.BeginPutProfile(ProfileId(profile), profile.size());
    EXPECT_THAT(begun.status(), IsOk());
    const absl::Status status = begun->session->Append(std::as_bytes(std::span(bytes)));
    return status.ok() ? begun->session->Commit().status() : status;
  };
  for (size_t at = 0; at < profile.size(); ++at) {
    std::string bad = profile;
    bad[at] ^= 1;
    EXPECT_THAT(put(bad), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("profile_id")));
  }
  EXPECT_THAT(put(profile + "!"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("total_bytes")));
  EXPECT_THAT(put(profile.substr(1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("total_bytes")));
  EXPECT_THAT(store.OpenProfile(ProfileId(profile)).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("profile")));
  EXPECT_EQ(store.Usage().profile_bytes, 0u);
  EXPECT_THAT(put(profile), IsOk());
}

TYPED_TEST(StoreContract, OneProfileForAllNamespacesUntilTheLastGoes) {
  Store& store = this->Make();
  TestChunk a = MakeChunk({});
  const TestChunk b = MakeChunk({.model = "other", .profile = a.profile});
  ASSERT_THAT(PutChunk(store, a).status(), IsOk());
  ASSERT_NE(store.BeginPut(b.announcement())->session, nullptr);
  ASSERT_THAT(PutChunk(store, b).status(), IsOk());
  EXPECT_EQ(store.Usage().profiles, 1u);
  EXPECT_EQ(store.Usage().profile_bytes, a.profile.size());
  ASSERT_THAT(store.Delete({a.id.namespace_digest, {}, {}}, false).status(), IsOk());
  EXPECT_EQ(ReadProfile(store, ProfileId(a.profile)), a.profile);
  const auto reader = store.OpenProfile(ProfileId(a.profile));
  ASSERT_THAT(store.Delete({b.id.namespace_digest, {}, {}}, false).status(), IsOk());
  EXPECT_EQ(store.Usage().profiles, 1u);  // somebody reads it
  std::string bytes(a.profile.size(), '\0');
  EXPECT_THAT((*reader)->Read(0, std::as_writable_bytes(std::span(bytes))), IsOk());
  EXPECT_EQ(bytes, a.profile);
}

TYPED_TEST(StoreContract, ProfileWithoutUseIsForgotten) {
  Store& store = this->Make();
  const TestChunk chunk = MakeChunk({});
  ASSERT_THAT(PutProfile(store, chunk.profile).status(), IsOk());
  store.DropUnusedProfiles();
  EXPECT_EQ(store.Usage().profiles, 1u);  // its first put may be on the way
  {
    const auto begun = store.BeginPut(chunk.announcement());
    this->clock_.Advance(2 * kProfilePatience);
    store.DropUnusedProfiles();
    EXPECT_EQ(store.Usage().profiles, 1u);
  }
  store.DropUnusedProfiles();
  EXPECT_EQ(store.Usage().profiles, 0u);
  EXPECT_EQ(store.Usage().profile_bytes, 0u);
  EXPECT_TRUE(store.BeginPut(chunk.announcement())->profile_needed);
}

TYPED_TEST(StoreContract, DamagedProfileComesBackWithTheNextPut) {
  Store& store = this->Make();
  const TestChunk chunk = MakeChunk({});
  ASSERT_THAT(PutChunk(store, chunk).status(), IsOk());
  store.RemoveDamagedProfile((*store.OpenProfile(ProfileId(chunk.profile)))->profile());
  EXPECT_EQ(store.ListNamespaces().at(0).profile_bytes, 0u);
  EXPECT_TRUE(IsStored(store, chunk));
  const TestChunk next = MakeChunk({.index = 1});
  EXPECT_TRUE(store.BeginPut(next.announcement())->profile_needed);
  ASSERT_THAT(PutChunk(store, next).status(), IsOk());
  this->clock_.Advance(2 * kProfilePatience);
  store.DropUnusedProfiles();
  EXPECT_EQ(ReadProfile(store, ProfileId(chunk.profile)), chunk.profile);
}

TYPED_TEST(StoreContract, ManyWritersOfOneProfile) {
  Store& store = this->Make();
  const std::string profile(100'000, 'p');
  std::atomic<int> stored = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto result = PutProfile(store, profile, 777);
      EXPECT_THAT(result.status(), IsOk());
      stored += result.ok() && *result == CommitResult::kStored;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stored, 1);
  EXPECT_EQ(store.Usage().profile_bytes, profile.size());
  EXPECT_EQ(ReadProfile(store, ProfileId(profile)), profile);
}

TYPED_TEST(StoreContract, EveryFlippedByteIsRefused) {
  Store& store = this->Make();
  const TestChunk good = MakeChunk({.segment_bytes = {20, 0, 30}});
  for (size_t at = 0; at < good.container.size(); ++at) {
    TestChunk bad = good;
    bad.container[at] ^= 0x40;
    const auto result = PutChunk(store, bad, 64);
    ASSERT_FALSE(result.ok()) << "byte " << at;
    ASSERT_FALSE(result.status().message().empty());
    ASSERT_FALSE(IsStored(store, good)) << "byte " << at;
  }
  EXPECT_EQ(store.Usage().reserved_bytes, 0u);
  EXPECT_EQ(store.Usage().bytes, 0u);
  EXPECT_THAT(PutChunk(store, good).status(), IsOk());
}

TYPED_TEST(StoreContract, WrongLengthIsRefused) {
  Store& store = this->Make();
  const TestChunk chunk = MakeChunk({});
  auto begun = BeginChunk(store, chunk);
  const auto bytes = std::as_bytes(std::span(chunk.container));
  ASSERT_THAT(begun->session->Append(bytes.first(bytes.size() - 1)), IsOk());
  EXPECT_THAT(begun->session->Commit().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("total_bytes")));
  begun = BeginChunk(store, chunk);
  ASSERT_THAT(begun->session->Append(bytes), IsOk());
  EXPECT_THAT(begun->session->Append(bytes.first(1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("total_bytes")));
}

TYPED_TEST(StoreContract, ForeignContainersAreRefused) {
  Store& store = this->Make();
  const TestChunk chunk = MakeChunk({});
  auto refuse = [&](const std::string& container, const std::string& field) {
    TestChunk wrong = chunk;
    wrong.container = container;
    EXPECT_THAT(PutChunk(store, wrong).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)));
  };
  refuse(MakeChunk({.index = 1}).container, "chunk_key");
  refuse(MakeChunk({.model = "other-model"}).container, "namespace");
  TestChunk wrong = chunk;
  wrong.descriptor.chunk_tokens = 32;
  wrong.id.namespace_digest = chunk.id.namespace_digest;
  EXPECT_THAT(PutChunk(store, wrong).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chunk_tokens")));
}

TYPED_TEST(StoreContract, FirstOfManyWritersWins) {
  Store& store = this->Make();
  constexpr int kWriters = 8;
  std::vector<TestChunk> variants;
  for (uint32_t i = 0; i < kWriters; ++i) variants.push_back(MakeChunk({.variant = i}));
  std::atomic<int> stored = 0;
  std::atomic<int> winner = -1;
  std::vector<std::thread> threads;
  for (int i = 0; i < kWriters; ++i) {
    threads.emplace_back([&, i] {
      const auto result = PutChunk(store, variants[i], 100);
      ASSERT_THAT(result.status(), IsOk());
      if (*result == CommitResult::kStored) {
        ++stored;
        winner = i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stored, 1);
  EXPECT_EQ(ReadChunk(store, variants[0]), variants[winner].container);
  EXPECT_EQ(store.Usage().chunks, 1u);
  EXPECT_EQ(store.Usage().reserved_bytes, 0u);
}

TYPED_TEST(StoreContract, OldestUseIsEvictedFirst) {
  const std::vector<TestChunk> a = MakeContext(1, 1, 1000);
  const std::vector<TestChunk> b = MakeContext(2, 1, 1000);
  const std::vector<TestChunk> c = MakeContext(3, 1, 1000);
  Store& store = this->Make(2 * a[0].container.size());
  ASSERT_THAT(PutChunk(store, a[0]).status(), IsOk());
  this->clock_.Advance(absl::Seconds(1));
  ASSERT_THAT(PutChunk(store, b[0]).status(), IsOk());
  this->clock_.Advance(absl::Seconds(1));
  store.Use(a[0].id, this->clock_.clock()());
  ASSERT_THAT(PutChunk(store, c[0]).status(), IsOk());
  EXPECT_TRUE(IsStored(store, a[0]));
  EXPECT_FALSE(IsStored(store, b[0]));
  EXPECT_TRUE(IsStored(store, c[0]));
  EXPECT_EQ(store.Usage().evicted_chunks, 1u);
}

TYPED_TEST(StoreContract, ContextIsEatenFromItsEnd) {
  const std::vector<TestChunk> context = MakeContext(1, 4, 1000);
  const std::vector<TestChunk> other = MakeContext(2, 4, 1000);
  Store& store = this->Make(4 * context[0].container.size());
  for (const TestChunk& chunk : context) {
    ASSERT_THAT(PutChunk(store, chunk).status(), IsOk());
    this->clock_.Advance(absl::Seconds(3));  // the first one was put longest ago, and goes last
  }
  for (size_t i = 0; i < other.size(); ++i) {
    ASSERT_THAT(PutChunk(store, other[i]).status(), IsOk());
    for (size_t k = 0; k < context.size(); ++k) {
      EXPECT_EQ(IsStored(store, context[k]), k < context.size() - 1 - i) << i << " " << k;
    }
  }
}

TYPED_TEST(StoreContract, UsingAChunkUsesThoseBeforeIt) {
  const std::vector<TestChunk> context = MakeContext(1, 3, 1000);
  const std::vector<TestChunk> other = MakeContext(2, 2, 1000);
  Store& store = this->Make(4 * context[0].container.size());
  for (const TestChunk& chunk : context) ASSERT_THAT(PutChunk(store, chunk).status(), IsOk());
  ASSERT_THAT(PutChunk(store, other[0]).status(), IsOk());
  this->clock_.Advance(absl::Seconds(5));
  store.Use(context[1].id, this->clock_.clock()());
  ASSERT_THAT(PutChunk(store, other[1]).status(), IsOk());
  EXPECT_TRUE(IsStored(store, context[0]));
  EXPECT_TRUE(IsStored(store, context[1]));
  EXPECT_FALSE(IsStored(store, context[2]));
}

TYPED_TEST(StoreContract, PinnedChunksStay) {
  const std::vector<TestChunk> context = MakeContext(1, 3, 1000);
  Store& store = this->Make(2 * context[0].container.size());
  ASSERT_THAT(PutChunk(store, context[0]).status(), IsOk());
  ASSERT_THAT(PutChunk(store, context[1]).status(), IsOk());
  const Selection all{context[0].id.namespace_digest, {}, {}};
  EXPECT_EQ(*store.Pin(all, true), 2u);
  EXPECT_THAT(PutChunk(store, context[2]).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("pinned")));
  EXPECT_EQ(store.Delete(all, false)->pinned_chunks, 2u);
  EXPECT_EQ(*store.Pin({all.namespace_digest, {context[0].id.key}, {}}, false), 1u);
  EXPECT_THAT(PutChunk(store, context[2]).status(), IsOk());
  EXPECT_FALSE(IsStored(store, context[0]));
  EXPECT_TRUE(IsStored(store, context[1]));
  EXPECT_EQ(store.Delete(all, true)->deleted_chunks, 2u);
  EXPECT_EQ(store.Usage().bytes, 0u);
}

TYPED_TEST(StoreContract, ReservationsCountAgainstTheQuota) {
  const std::vector<TestChunk> context = MakeContext(1, 2, 1000);
  Store& store = this->Make(context[0].container.size() + 100);
  auto first = BeginChunk(store, context[0]);
  ASSERT_THAT(first.status(), IsOk());
  EXPECT_THAT(BeginChunk(store, context[1]).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("reserved")));
  first->session.reset();
  EXPECT_THAT(PutChunk(store, context[1]).status(), IsOk());
}

TYPED_TEST(StoreContract, ReadersSurviveRemoval) {
  Store& store = this->Make();
  const TestChunk chunk = MakeChunk({});
  ASSERT_THAT(PutChunk(store, chunk).status(), IsOk());
  const ReaderPtr reader = *store.Open(chunk.id);
  const Selection all{chunk.id.namespace_digest, {}, {}};
  EXPECT_EQ(store.Delete(all, false)->deleted_bytes, chunk.container.size());
  EXPECT_FALSE(IsStored(store, chunk));
  std::string bytes(chunk.container.size(), '\0');
  ASSERT_THAT(reader->Read(0, std::as_writable_bytes(std::span(bytes))), IsOk());
  EXPECT_EQ(bytes, chunk.container);
}

TYPED_TEST(StoreContract, SelectionByIdleTime) {
  Store& store = this->Make();
  const TestChunk old = MakeChunk({.context = 1});
  const TestChunk fresh = MakeChunk({.context = 2});
  ASSERT_THAT(PutChunk(store, old).status(), IsOk());
  this->clock_.Advance(absl::Minutes(10));
  ASSERT_THAT(PutChunk(store, fresh).status(), IsOk());
  const Selection idle{old.id.namespace_digest, {}, absl::Minutes(5)};
  EXPECT_EQ(store.Delete(idle, false)->deleted_chunks, 1u);
  EXPECT_FALSE(IsStored(store, old));
  EXPECT_TRUE(IsStored(store, fresh));
  EXPECT_EQ(*store.Touch({old.id.namespace_digest, {old.id.key, fresh.id.key}, {}}), 1u);
}

TYPED_TEST(StoreContract, ListsInPages) {
  Store& store = this->Make();
  const std::vector<TestChunk> context = MakeContext(1, 5, 100);
  for (const TestChunk& chunk : context) ASSERT_THAT(PutChunk(store, chunk).status(), IsOk());
  ASSERT_THAT(PutChunk(store, MakeChunk({.model = "other"})).status(), IsOk());
  EXPECT_EQ(store.ListNamespaces().size(), 2u);
  std::vector<Digest> listed;
  std::optional<Digest> after;
  while (true) {
    const auto page = store.ListChunks(context[0].id.namespace_digest, after, 2);
    ASSERT_THAT(page.status(), IsOk());
    if (page->empty()) break;
    for (const ChunkSummary& chunk : *page) listed.push_back(chunk.id.key);
    after = listed.back();
  }
  EXPECT_EQ(listed.size(), 5u);
  EXPECT_TRUE(std::ranges::is_sorted(listed));
  EXPECT_THAT(store.ListChunks({}, after, 2).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("namespace")));
}

TYPED_TEST(StoreContract, EmptyNamespacesMakeRoomForNewOnes) {
  Store& store = this->Make();
  std::vector<TestChunk> chunks;
  for (int i = 0; i < 5; ++i) chunks.push_back(MakeChunk({.model = absl::StrCat("m", i)}));
  for (int i = 0; i < 4; ++i) ASSERT_THAT(PutChunk(store, chunks[i]).status(), IsOk());
  EXPECT_THAT(PutChunk(store, chunks[4]).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("max_namespaces")));
  const ChunkId first = chunks[0].id;
  ASSERT_THAT(store.Delete({first.namespace_digest, {first.key}, {}}, false).status(), IsOk());
  EXPECT_THAT(PutChunk(store, chunks[4]).status(), IsOk());
  EXPECT_EQ(store.Usage().namespaces, 4u);
}

TYPED_TEST(StoreContract, DamagedChunkCanBePutAgain) {
  Store& store = this->Make();
  const TestChunk chunk = MakeChunk({});
  ASSERT_THAT(PutChunk(store, chunk).status(), IsOk());
  const HeaderPtr header = (*store.Open(chunk.id))->header();
  store.RemoveDamaged(chunk.id, header);
  EXPECT_FALSE(IsStored(store, chunk));
  ASSERT_THAT(PutChunk(store, chunk).status(), IsOk());
  store.RemoveDamaged(chunk.id, header);  // speaks of the bytes before
  EXPECT_TRUE(IsStored(store, chunk));
}

TYPED_TEST(StoreContract, WritersReadersAndEvictionTogether) {
  const std::vector<TestChunk> context = MakeContext(1, 12, 500);
  Store& store = this->Make(5 * context[0].container.size());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 60; ++i) {
        const TestChunk& chunk = context[(i * 5 + t * 3) % context.size()];
        const auto put = PutChunk(store, chunk);
        ASSERT_TRUE(put.ok() || absl::IsResourceExhausted(put.status())) << put.status();
        const auto reader = store.Open(chunk.id);
        if (!reader.ok()) continue;
        std::string bytes(chunk.container.size(), '\0');
        ASSERT_THAT((*reader)->Read(0, std::as_writable_bytes(std::span(bytes))), IsOk());
        ASSERT_EQ(bytes, chunk.container);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StoreUsage usage = store.Usage();
  EXPECT_LE(usage.bytes, usage.quota_bytes);
  EXPECT_EQ(usage.reserved_bytes, 0u);
  for (const TestChunk& chunk : context) {
    if (IsStored(store, chunk)) {
      EXPECT_EQ(ReadChunk(store, chunk), chunk.container);
    }
  }
}

}  // namespace
}  // namespace sluice::server
