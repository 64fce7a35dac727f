#include "server/chunk_cache.h"

#include <thread>

#include "server/file_store.h"
#include "tests/server/testing.h"

namespace sluice::server {
namespace {

using testing::HasSubstr;

constexpr LayerRange kAll{0, 255};

class ChunkCacheTest : public testing::Test {
 protected:
  ChunkCacheTest() {
    FileStoreOptions options;
    options.data_dir = folder_.path() + "/data";
    options.quota_bytes = 64 << 20;
    store_ = *FileStore::Open(std::move(options));
    context_ = MakeContext(1, 4, 10000);
    for (const TestChunk& chunk : context_) EXPECT_THAT(PutChunk(*store_, chunk).status(), IsOk());
    bytes_ = context_[0].container.size();
  }

  static std::string Text(const ReaderPtr& reader) {
    std::string bytes(reader->header()->total_bytes(), '\0');
    EXPECT_THAT(reader->Read(0, std::as_writable_bytes(std::span(bytes))), IsOk());
    return bytes;
  }

  TestFolder folder_;
  std::unique_ptr<FileStore> store_;
  std::vector<TestChunk> context_;
  uint64_t bytes_ = 0;
};

TEST_F(ChunkCacheTest, LeastRecentlyUsedLeaves) {
  ChunkCache cache(store_.get(), 2 * bytes_, bytes_);
  auto get = [&](int i) { return Text(*cache.Get(context_[i].id, kAll)); };
  for (int i : {0, 1, 0, 2, 0, 1}) EXPECT_EQ(get(i), context_[i].container);
  EXPECT_EQ(cache.Usage().hits, 2u);  // both of chunk 0
  EXPECT_EQ(cache.Usage().misses, 4u);
  EXPECT_EQ(cache.Usage().bytes, 2 * bytes_);
}

TEST_F(ChunkCacheTest, ReadersSurviveEviction) {
  ChunkCache cache(store_.get(), bytes_, bytes_);
  const ReaderPtr reader = *cache.Get(context_[0].id, kAll);
  for (const TestChunk& chunk : context_) ASSERT_THAT(cache.Get(chunk.id, kAll).status(), IsOk());
  EXPECT_EQ(Text(reader), context_[0].container);
}

TEST_F(ChunkCacheTest, LargeChunksBypass) {
  ChunkCache cache(store_.get(), 10 * bytes_, bytes_ - 1);
  const ReaderPtr reader = *cache.Get(context_[0].id, kAll);
  EXPECT_TRUE(reader->bytes().empty());
  EXPECT_EQ(Text(reader), context_[0].container);
  EXPECT_EQ(cache.Usage().bytes, 0u);
}

TEST_F(ChunkCacheTest, ConcurrentReadersShareOneLoad) {
  ChunkCache cache(store_.get(), 4 * bytes_, bytes_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (const TestChunk& chunk : context_) {
        EXPECT_EQ(Text(*cache.Get(chunk.id, kAll)), chunk.container);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.Usage().misses, 4u);
  EXPECT_EQ(cache.Usage().hits, 28u);
}

TEST_F(ChunkCacheTest, FollowsTheStore) {
  ChunkCache cache(store_.get(), 4 * bytes_, bytes_);
  ASSERT_THAT(cache.Get(context_[0].id, kAll).status(), IsOk());
  ASSERT_THAT(
      store_->Delete({context_[0].id.namespace_digest, {context_[0].id.key}, {}}, true).status(),
      IsOk());
  EXPECT_EQ(cache.Get(context_[0].id, kAll).status().code(), absl::StatusCode::kNotFound);
  const TestChunk other =
      MakeChunk({.context = 1, .segment_bytes = {10000}, .groups = 1, .variant = 1});
  ASSERT_EQ(other.id, context_[0].id);
  ASSERT_THAT(PutChunk(*store_, other).status(), IsOk());
  EXPECT_EQ(Text(*cache.Get(other.id, kAll)), other.container);
}

TEST_F(ChunkCacheTest, DamageIsFoundOnTheWayIn) {
  for (uint64_t limit : {4 * bytes_, uint64_t{0}}) {
    ChunkCache cache(store_.get(), limit, limit);
    const TestChunk& chunk = context_[limit == 0];
    for (const auto& path : folder_.Find(".chunk")) {
      if (path.stem() != codec::DigestHex(chunk.id.key)) continue;
      std::string bytes = ReadFile(path);
      bytes[bytes.size() / 2] ^= 1;
      WriteFile(path, bytes);
    }
    EXPECT_THAT(cache.Get(chunk.id, kAll).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("segment")));
    EXPECT_EQ(cache.Get(chunk.id, kAll).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(cache.Usage().bytes, 0u);
  }
}

TEST_F(ChunkCacheTest, DamagedHeaderOnDiskIsFound) {
  for (uint64_t limit : {4 * bytes_, uint64_t{0}}) {
    ChunkCache cache(store_.get(), limit, limit);
    const TestChunk& chunk = context_[limit == 0];
    for (const auto& path : folder_.Find(".chunk")) {
      if (path.stem() == codec::DigestHex(chunk.id.key)) WriteFile(path, context_[2].container);
    }
    EXPECT_THAT(cache.Get(chunk.id, kAll).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("header")));
  }
}

}  // namespace
}  // namespace sluice::server
