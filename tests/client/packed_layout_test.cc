// Blocks whose tokens and dimensions are packed: copies and decodes put every element where the
// layout says, and touch nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "client/block_pool.h"
#include "codec/bytes.h"
#include "tests/client/packed_layouts.h"
#include "tests/codec/test_profiles.h"

namespace sluice::client {
namespace {

constexpr std::byte kNobodys{0xee};
constexpr codec::ElementType kTypes[] = {codec::ElementType::kBf16, codec::ElementType::kFp16,
                                         codec::ElementType::kFp32};

// A pool of an engine that holds nothing yet, as the daemon maps it.
class Engine {
 public:
  explicit Engine(const BlockLayout& layout) : layout_(layout), shm_(layout.pool_bytes) {
    std::fill(shm_.data(), shm_.data() + shm_.size(), kNobodys);
    expected_.assign(shm_.size(), kNobodys);
    auto pool = BlockPool::Map(shm_.name(), layout);
    EXPECT_TRUE(pool.ok()) << pool.status();
    if (pool.ok()) pool_ = *std::move(pool);
  }

  BlockPool& pool() { return *pool_; }

  // The plane's values [head][token][dim] are to be in these blocks.
  void Expect(size_t plane, std::span<const uint32_t> blocks, std::span<const std::byte> values) {
    const codec::PlaneSpec& spec = layout_.geometry.planes[plane];
    const size_t element = codec::ElementBytes(spec.element_type);
    const uint32_t block_tokens = layout_.block_tokens;
    size_t position = 0;
    for (uint32_t h = 0; h < spec.num_heads; ++h) {
      for (size_t t = 0; t < blocks.size() * block_tokens; ++t) {
        for (uint32_t d = 0; d < spec.head_dim; ++d, position += element) {
          const uint64_t at =
              ElementOffset(layout_, plane, blocks[t / block_tokens], t % block_tokens, h, d);
          std::memcpy(expected_.data() + at, values.data() + position, element);
        }
      }
    }
  }

  bool IsAsExpected() { return std::ranges::equal(std::span(shm_.data(), shm_.size()), expected_); }

 private:
  const BlockLayout layout_;
  ShmPool shm_;
  std::vector<std::byte> expected_;
  std::unique_ptr<BlockPool> pool_;
};

// Some of the pool's blocks in any order.
std::vector<uint32_t> SomeBlocks(uint32_t num_blocks, size_t count, std::mt19937& random) {
  std::vector<uint32_t> blocks(num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::ranges::shuffle(blocks, random);
  blocks.resize(count);
  return blocks;
}

TEST(PackedLayoutTest, CopiesFollowTheLayout) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i) {
    const Packing packing = kPackings[i % std::size(kPackings)];
    const uint32_t block_tokens = 16 * (1 + random() % 3);
    const uint32_t head_dim = 32 + 16 * (random() % 15);
    const codec::Geometry geometry =
        codec::KeysAndValues(1 + random() % 2, 1 + random() % 3, head_dim, kTypes[random() % 3]);
    const BlockLayout layout = PackedLayout(packing, geometry, 5, block_tokens, 64);
    SCOPED_TRACE(testing::Message() << "packing " << static_cast<int>(packing) << ", head_dim "
                                    << head_dim << ", block_tokens " << block_tokens);
    Engine engine(layout);
    std::vector<uint32_t> blocks = SomeBlocks(layout.num_blocks, 1 + random() % 4, random);
    std::vector<std::vector<std::byte>> planes;
    for (size_t p = 0; p < geometry.planes.size(); ++p) {
      auto& values =
          planes.emplace_back(blocks.size() * block_tokens * geometry.planes[p].bytes_per_token());
      std::ranges::generate(values, [&] { return static_cast<std::byte>(random()); });
      ASSERT_TRUE(engine.pool().Scatter(p, blocks, values).ok());
      engine.Expect(p, blocks, values);
    }
    ASSERT_TRUE(engine.IsAsExpected());
    for (size_t p = 0; p < geometry.planes.size(); ++p) {
      std::vector<std::byte> values(planes[p].size());
      ASSERT_TRUE(engine.pool().Gather(p, blocks, values).ok());
      ASSERT_EQ(values, planes[p]);
    }
    ASSERT_TRUE(engine.IsAsExpected());
  }
}

// Has every group of the chunk decoded into the engine's blocks, and expects the dense planes
// there.
void DecodeInto(Engine& engine, const codec::TestChunk& chunk, std::string_view container,
                codec::Level level, std::span<const uint32_t> blocks) {
  const auto bytes = std::as_bytes(std::span(container));
  const codec::ChunkHeader header = *codec::ParseChunkHeader(bytes);
  const auto dense = codec::DecodeChunk(chunk.profile, bytes, level);
  ASSERT_TRUE(dense.ok()) << dense.status();
  codec::GroupDecoder decoder;
  for (size_t g = 0; g < chunk.profile.groups().size(); ++g) {
    const codec::GroupSpec& group = chunk.profile.groups()[g];
    ASSERT_TRUE(
        decoder.Read(chunk.profile, header, g, level, codec::SegmentsOf(header, bytes, g, level))
            .ok());
    const absl::Status status = engine.pool().Access(
        group.first_plane, group.num_planes, blocks,
        [&](std::span<const codec::PlaneRuns> runs) { return decoder.Write(runs); });
    ASSERT_TRUE(status.ok()) << status;
  }
  for (size_t p = 0; p < dense->size(); ++p) {
    engine.Expect(p, blocks, std::as_bytes(std::span((*dense)[p])));
  }
}

TEST(PackedLayoutTest, DecodesFollowTheLayout) {
  constexpr uint32_t kBlockTokens = 32;
  constexpr uint32_t kChunkBlocks = 5;
  std::mt19937 random(11);
  for (const codec::ElementType type : kTypes) {
    const codec::Geometry geometry = codec::KeysAndValues(
        2, 2, 64, type, codec::MakeRotaryTable(10000, 64, codec::RotaryLayout::kHalf));
    for (const bool calibrated : {false, true}) {
      codec::TestChunk chunk =
          codec::MakeChunk(geometry, 512, kChunkBlocks * kBlockTokens, 1, calibrated ? 0 : 1);
      if (calibrated) chunk.profile = codec::MakeCalibratedProfile(geometry, 2, 0.2, 7);
      const std::string container = chunk.Encode({.lossy = true, .lossless = true}).container;
      for (const Packing packing : kPackings) {
        for (const codec::Level level : {codec::Level{0}, codec::Level{2}, codec::kLossless}) {
          SCOPED_TRACE(testing::Message()
                       << "packing " << static_cast<int>(packing) << ", level " << int{level}
                       << ", type " << static_cast<int>(type) << ", calibrated " << calibrated);
          Engine engine(PackedLayout(packing, geometry, 8, kBlockTokens, 64));
          DecodeInto(engine, chunk, container, level, SomeBlocks(8, kChunkBlocks, random));
          ASSERT_TRUE(engine.IsAsExpected());
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::client
