#include "client/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/client/shm_pool.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kBlocks = 6;
constexpr uint32_t kBlockTokens = 16;

BlockLayout SmallLayout() { return HeadMajorLayout(SmallGeometry(2, 3, 8), kBlocks, kBlockTokens); }

// Counts how often each byte of the pool belongs to an element: the truth that Validate must not
// exceed.
bool SharesBytes(const BlockLayout& layout) {
  std::vector<int> owners(layout.pool_bytes);
  for (size_t p = 0; p < layout.planes.size(); ++p) {
    const codec::PlaneSpec& spec = layout.geometry.planes[p];
    const size_t element = codec::ElementBytes(spec.element_type);
    const uint64_t num_rows = uint64_t{layout.num_blocks} * layout.block_tokens * spec.num_heads;
    for (uint64_t i = 0; i < num_rows * spec.head_dim; ++i) {
      const uint64_t row = i / spec.head_dim;
      const uint64_t token = row / spec.num_heads;
      const uint64_t first =
          ElementOffset(layout, p, token / layout.block_tokens, token % layout.block_tokens,
                        row % spec.num_heads, i % spec.head_dim);
      for (uint64_t byte = first; byte < first + element; ++byte) {
        if (byte >= owners.size() || ++owners[byte] > 1) return true;
      }
    }
  }
  return false;
}

TEST(BlockLayoutTest, AcceptsTheUsualOrders) {
  const codec::Geometry geometry = SmallGeometry(2, 3, 8);
  constexpr uint64_t kRow = 16;
  constexpr uint64_t kHeads = 3;
  // Strides of (block, token, head) and the distance of the planes, for the orders that engines
  // use.
  struct Order {
    const char* name;
    uint64_t block, token, head, plane;
  };
  const uint64_t all = 4 * kBlockTokens * kHeads * kRow;
  const Order orders[] = {
      {"plane, block, token, head", kBlockTokens * kHeads * kRow, kHeads * kRow, kRow,
       kBlocks * kBlockTokens * kHeads * kRow},
      {"plane, block, head, token", kBlockTokens * kHeads * kRow, kRow, kBlockTokens * kRow,
       kBlocks * kBlockTokens * kHeads * kRow},
      {"block, plane, token, head", all, kHeads * kRow, kRow, kBlockTokens * kHeads * kRow},
      {"block, token, plane, head", all, 4 * kHeads * kRow, kRow, kHeads * kRow},
      {"block, head, token, plane", all, 4 * kRow, 4 * kBlockTokens * kRow, kRow},
  };
  for (const Order& order : orders) {
    BlockLayout layout;
    layout.geometry = geometry;
    layout.num_blocks = kBlocks;
    layout.block_tokens = kBlockTokens;
    layout.pool_bytes = kBlocks * all;
    for (uint64_t i = 0; i < 4; ++i) {
      layout.planes.push_back({i * order.plane, order.block, order.token, order.head});
    }
    EXPECT_TRUE(layout.Validate().ok()) << order.name << ": " << layout.Validate();
    EXPECT_FALSE(SharesBytes(layout)) << order.name;
    layout.pool_bytes -= 1;
    EXPECT_FALSE(layout.Validate().ok()) << order.name;
  }
}

// Tiles of `tokens` tokens and of 4 dimensions.
void Tile(PlaneLayout& at, uint32_t tokens, uint64_t token_tile_stride, uint64_t dim_tile_stride) {
  at.token_tile = tokens;
  at.token_tile_stride_bytes = token_tile_stride;
  at.dim_tile = 4;
  at.dim_tile_stride_bytes = dim_tile_stride;
}

TEST(BlockLayoutTest, NamesTheFieldThatIsWrong) {
  using Change = std::function<void(BlockLayout&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"pool_bytes", [](BlockLayout& l) { l.pool_bytes = 0; }},
      {"num_blocks", [](BlockLayout& l) { l.num_blocks = 0; }},
      {"num_blocks", [](BlockLayout& l) { l.num_blocks = 0xffffffff; }},
      {"block_tokens", [](BlockLayout& l) { l.block_tokens = 1 << 20; }},
      {"layouts has 3", [](BlockLayout& l) { l.planes.pop_back(); }},
      {"layouts[1].offset_bytes", [](BlockLayout& l) { l.planes[1].offset_bytes = ~uint64_t{1}; }},
      {"layouts[2].offset_bytes", [](BlockLayout& l) { l.planes[2].offset_bytes += 1; }},
      {"block_stride_bytes",
       [](BlockLayout& l) { l.planes[0].block_stride_bytes = uint64_t{1} << 63; }},
      {"token_stride_bytes", [](BlockLayout& l) { l.planes[0].token_stride_bytes = 0; }},
      {"head_stride_bytes", [](BlockLayout& l) { l.planes[3].head_stride_bytes = 14; }},
      {"layouts[0].token_tile is 3", [](BlockLayout& l) { l.planes[0].token_tile = 3; }},
      {"layouts[0].token_tile is 32", [](BlockLayout& l) { l.planes[0].token_tile = 32; }},
      {"token_tile_stride_bytes is 8, but",
       [](BlockLayout& l) { l.planes[0].token_tile_stride_bytes = 8; }},
      {"token_tile_stride_bytes is 4, less", [](BlockLayout& l) { Tile(l.planes[0], 2, 4, 8); }},
      {"token_tile_stride_bytes is not aligned",
       [](BlockLayout& l) { Tile(l.planes[0], 2, 65, 8); }},
      {"token_tile_stride_bytes leads out",
       [](BlockLayout& l) { Tile(l.planes[0], 2, uint64_t{1} << 40, 8); }},
      {"layouts[1].dim_tile is 16", [](BlockLayout& l) { l.planes[1].dim_tile = 16; }},
      {"layouts[1].dim_tile is 3", [](BlockLayout& l) { l.planes[1].dim_tile = 3; }},
      {"dim_tile_stride_bytes is 8, but",
       [](BlockLayout& l) { l.planes[1].dim_tile_stride_bytes = 8; }},
      {"dim_tile_stride_bytes is 6, less", [](BlockLayout& l) { Tile(l.planes[1], 8, 64, 6); }},
      {"dim_stride_bytes is not aligned", [](BlockLayout& l) { l.planes[1].dim_stride_bytes = 3; }},
      {"dim_stride_bytes leads out",
       [](BlockLayout& l) { l.planes[1].dim_stride_bytes = uint64_t{1} << 62; }},
      {"share bytes", [](BlockLayout& l) { l.planes[1].offset_bytes = 0; }},
      {"share bytes", [](BlockLayout& l) { l.planes[1].offset_bytes -= 2; }},
  };
  for (const auto& [field, change] : cases) {
    BlockLayout layout = SmallLayout();
    change(layout);
    const absl::Status status = layout.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  }
}

TEST(BlockLayoutTest, NeverAcceptsSharedBytes) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    BlockLayout layout;
    layout.geometry = SmallGeometry(1, 1 + random() % 2, 1 + random() % 3);
    layout.geometry.planes[1].head_dim = 1 + random() % 3;
    layout.num_blocks = 1 + random() % 3;
    layout.block_tokens = 1 + random() % 3;
    layout.pool_bytes = 200;
    for (int plane = 0; plane < 2; ++plane) {
      const auto stride = [&] { return 2 * (random() % 24); };
      PlaneLayout& at = layout.planes.emplace_back();
      at = {stride(), stride(), stride(), stride()};
      if (random() % 2 == 0) continue;
      at.token_tile = 1;
      at.token_tile_stride_bytes = stride();
      at.dim_tile = 1 + random() % 2;
      at.dim_tile_stride_bytes = stride();
      at.dim_stride_bytes = 2 * (random() % 3);
    }
    if (!layout.Validate().ok()) continue;
    ++accepted;
    ASSERT_FALSE(SharesBytes(layout));
  }
  EXPECT_GT(accepted, 20);
}

class BlockPoolTest : public ::testing::Test {
 protected:
  BlockPoolTest() : layout_(SmallLayout()), shm_(layout_.pool_bytes) {
    auto pool = BlockPool::Map(shm_.name(), layout_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    pool_ = std::move(*pool);
  }

  static std::vector<std::byte> Values(size_t plane_bytes, int seed) {
    std::vector<std::byte> values(plane_bytes);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 7 + seed);
    return values;
  }

  static constexpr size_t kPlaneBytes = 3 * 2 * kBlockTokens * 16;  // of two blocks

  const BlockLayout layout_;
  ShmPool shm_;
  std::unique_ptr<BlockPool> pool_;
};

TEST_F(BlockPoolTest, ScatterPutsElementsWhereTheLayoutSays) {
  const auto values = Values(kPlaneBytes, 1);
  ASSERT_TRUE(pool_->Scatter(3, std::vector<uint32_t>{4, 1}, values).ok());
  const PlaneLayout& at = layout_.planes[3];
  const uint32_t blocks[] = {4, 1};
  for (uint32_t head = 0; head < 3; ++head) {
    for (uint32_t token = 0; token < 2 * kBlockTokens; ++token) {
      const std::byte* row =
          shm_.data() + at.offset_bytes + blocks[token / kBlockTokens] * at.block_stride_bytes +
          (token % kBlockTokens) * at.token_stride_bytes + head * at.head_stride_bytes;
      const std::byte* expected = values.data() + (head * 2 * kBlockTokens + token) * 16;
      ASSERT_EQ(std::memcmp(row, expected, 16), 0) << head << " " << token;
    }
  }
}

TEST_F(BlockPoolTest, ScatterTouchesNothingElse) {
  std::vector<std::byte> before(shm_.size(), std::byte{0xee});
  std::memcpy(shm_.data(), before.data(), before.size());
  ASSERT_TRUE(pool_->Scatter(0, std::vector<uint32_t>{2}, Values(kPlaneBytes / 2, 3)).ok());
  size_t changed = 0;
  for (size_t i = 0; i < shm_.size(); ++i) changed += shm_.data()[i] != before[i];
  EXPECT_LE(changed, kPlaneBytes / 2);
  EXPECT_GT(changed, kPlaneBytes / 4);
}

TEST_F(BlockPoolTest, GatherReadsWhatScatterWrote) {
  const std::vector<uint32_t> blocks = {0, 5};
  for (size_t plane = 0; plane < 4; ++plane) {
    ASSERT_TRUE(pool_->Scatter(plane, blocks, Values(kPlaneBytes, static_cast<int>(plane))).ok());
  }
  for (size_t plane = 0; plane < 4; ++plane) {
    std::vector<std::byte> read(kPlaneBytes);
    ASSERT_TRUE(pool_->Gather(plane, blocks, read).ok());
    EXPECT_EQ(read, Values(kPlaneBytes, static_cast<int>(plane)));
  }
}

TEST_F(BlockPoolTest, WrongSizeIsRefused) {
  const auto status = pool_->Scatter(0, std::vector<uint32_t>{0}, Values(kPlaneBytes, 0));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BlockPoolTest, ShortenedPoolIsRefusedForEver) {
  ASSERT_TRUE(shm_.Truncate(100));
  std::vector<std::byte> values(kPlaneBytes / 2);
  const std::vector<uint32_t> blocks = {kBlocks - 1};
  EXPECT_EQ(pool_->Gather(0, blocks, values).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(shm_.Truncate(shm_.size()));
  EXPECT_EQ(pool_->Scatter(0, blocks, values).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(BlockPoolMapTest, RefusesBadNamesAndSizes) {
  BlockLayout layout = SmallLayout();
  ShmPool shm(layout.pool_bytes);
  for (const std::string& name :
       {std::string(), std::string("/"), std::string("a"), std::string("/a/b"),
        std::string("/../etc/passwd"), std::string(300, '/'), std::string("/a\0b", 4)}) {
    EXPECT_EQ(BlockPool::Map(name, layout).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_EQ(BlockPool::Map("/sluice-test-none", layout).status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(shm.Truncate(layout.pool_bytes - 1));
  const absl::Status status = BlockPool::Map(shm.name(), layout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("pool_bytes"));
}

TEST_F(BlockPoolTest, WritesWhereScatterDoes) {
  const BlockLayout layout = SmallLayout();
  ShmPool one(layout.pool_bytes), other(layout.pool_bytes);
  auto scattered = BlockPool::Map(one.name(), layout);
  auto written = BlockPool::Map(other.name(), layout);
  ASSERT_TRUE(scattered.ok() && written.ok());
  const std::vector<uint32_t> blocks = {4, 1, 3};
  const size_t num_tokens = blocks.size() * kBlockTokens;
  std::vector<std::vector<std::byte>> planes;
  for (size_t i = 1; i < 3; ++i) {
    auto& plane = planes.emplace_back(num_tokens * layout.geometry.planes[i].bytes_per_token());
    for (size_t k = 0; k < plane.size(); ++k) plane[k] = static_cast<std::byte>(k * 7 + i);
    ASSERT_TRUE((*scattered)->Scatter(i, blocks, plane).ok());
  }
  const auto write = [&](std::span<const codec::PlaneRuns> runs) {
    EXPECT_EQ(runs.size(), planes.size());
    for (size_t i = 0; i < runs.size(); ++i) {
      codec::CopyToRuns(layout.geometry.planes[i + 1], planes[i], {0, num_tokens}, runs[i]);
    }
    return absl::OkStatus();
  };
  EXPECT_TRUE((*written)->Access(1, 2, blocks, write).ok());
  EXPECT_EQ(std::memcmp(one.data(), other.data(), layout.pool_bytes), 0);
  EXPECT_EQ((*written)->Access(1, 2, blocks, [](auto) { return absl::InternalError("no"); }),
            absl::InternalError("no"));
  // The engine takes its memory back while a plane is on its way.
  const auto shorten = [&](std::span<const codec::PlaneRuns> runs) {
    EXPECT_TRUE(other.Truncate(0));
    return write(runs);
  };
  EXPECT_TRUE(absl::IsFailedPrecondition((*written)->Access(1, 2, blocks, shorten)));
  EXPECT_TRUE(absl::IsFailedPrecondition((*written)->Access(1, 2, blocks, write)));
}

}  // namespace
}  // namespace sluice::client
