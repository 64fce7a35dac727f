#include "client/chunk_assembly.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/client/scripted_store.h"

namespace sluice::client {
namespace {

constexpr uint32_t kSeed = 7;

const TestContext& Context() {
  static const TestContext context = MakeContext(2, kSeed);
  return context;
}

class ChunkAssemblyTest : public testing::Test {
 protected:
  ChunkAssemblyTest()
      : header_(codec::ParseChunkHeader(std::as_bytes(std::span(container_))).value()),
        plan_(PlanChunk(Context().profile, Options(), 1, ManifestOf(container_))),
        assembly_(Context().profile,
                  {Context().chunk_keys[1], Context().namespace_digest, TestContext::kChunkTokens,
                   TestContext::kChunkTokens},
                  ManifestOf(container_), plan_.steps) {}

  static LoadOptions Options() {
    LoadOptions options = Context().Options();
    options.max_level = codec::kLossless;
    return options;
  }

  // Container range of a step.
  std::pair<uint64_t, uint64_t> Range(uint32_t step) const {
    const uint32_t layer = plan_.steps[step].first_layer;
    const uint64_t begin = header_.LayerOffset(layer);
    return {step == 0 ? 0 : begin, begin + header_.layers[layer].bytes()};
  }

  absl::Status Feed(uint32_t ask_id, uint64_t begin, uint64_t end) {
    return assembly_.Add(ask_id, begin, container_.substr(begin, end - begin)).status();
  }

  void FeedStep(uint32_t step) {
    assembly_.Begin(step + 1, step, step);
    const auto [begin, end] = Range(step);
    ASSERT_TRUE(Feed(step + 1, begin, end).ok());
    ASSERT_TRUE(assembly_.End(step + 1).ok());
  }

  const std::string container_ = Context().containers[1];
  const codec::ChunkHeader header_;
  const ChunkPlan plan_;
  ChunkAssembly assembly_;
};

TEST_F(ChunkAssemblyTest, StepsBecomeReadyAsTheirLayersDo) {
  ASSERT_EQ(plan_.steps.size(), 4u);
  EXPECT_EQ(assembly_.ReadyStep(0), -1);
  FeedStep(0);
  EXPECT_EQ(assembly_.ReadyStep(0), 0);
  FeedStep(2);
  EXPECT_EQ(assembly_.ReadyStep(0), 0);  // layer 1 is missing
  FeedStep(1);
  EXPECT_EQ(assembly_.ReadyStep(0), 2);
  FeedStep(3);
  EXPECT_EQ(assembly_.ReadyStep(0), 3);
  EXPECT_EQ(assembly_.Input(0, 2).segments.size(), 3u);
  EXPECT_EQ(assembly_.Input(0, 3).segments.size(), 1u);  // lossless is decoded alone
  EXPECT_EQ(assembly_.Input(0, 3).level, codec::kLossless);
}

TEST_F(ChunkAssemblyTest, GroupsAreReportedWhenTheirSegmentIsWhole) {
  assembly_.Begin(1, 0, 0);
  const uint64_t first_end = header_.SegmentOffset(0, 0) + header_.layers[0].segments[0].bytes;
  EXPECT_TRUE(Feed(1, 0, header_.header_bytes).ok());
  EXPECT_TRUE(Feed(1, header_.header_bytes, first_end - 1).ok());
  EXPECT_EQ(assembly_.ReadyStep(0), -1);
  const auto groups = assembly_.Add(1, first_end - 1, container_.substr(first_end - 1, 1));
  ASSERT_TRUE(groups.ok());
  EXPECT_EQ(*groups, std::vector<size_t>{0});
  EXPECT_EQ(assembly_.ReadyStep(0), 0);
  EXPECT_EQ(assembly_.ReadyStep(1), -1);
  EXPECT_FALSE(assembly_.End(1).ok());  // the rest is missing
}

TEST_F(ChunkAssemblyTest, ARefinementMayComeBeforeTheHeader) {
  FeedStep(1);
  EXPECT_EQ(assembly_.ReadyStep(0), -1);
  FeedStep(0);
  EXPECT_EQ(assembly_.ReadyStep(0), 1);
}

TEST_F(ChunkAssemblyTest, WhatIsDroppedCanBeAskedForAgain) {
  FeedStep(0);
  FeedStep(1);
  const GroupInput kept = assembly_.Input(0, 1);
  assembly_.Drop(1);
  EXPECT_EQ(assembly_.ReadyStep(0), 0);
  EXPECT_FALSE(kept.segments[1]->empty());  // whoever decodes it keeps it
  FeedStep(1);
  EXPECT_EQ(assembly_.ReadyStep(0), 1);
  assembly_.Drop(0);
  EXPECT_EQ(assembly_.ReadyStep(0), -1);
  FeedStep(0);
  EXPECT_EQ(assembly_.ReadyStep(0), 0);
}

TEST_F(ChunkAssemblyTest, FramesOfDroppedAsksAreRefused) {
  assembly_.Begin(9, 0, 0);
  assembly_.Drop(0);
  EXPECT_FALSE(Feed(9, 0, 10).ok());
  EXPECT_FALSE(Feed(77, 0, 10).ok());
}

// Whatever arrives, a group is ready only with segments of the promised lengths.
TEST_F(ChunkAssemblyTest, RandomFramesDoNoHarm) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    ChunkAssembly assembly(Context().profile,
                           {Context().chunk_keys[1], Context().namespace_digest,
                            TestContext::kChunkTokens, TestContext::kChunkTokens},
                           ManifestOf(container_), plan_.steps);
    assembly.Begin(1, 0, 0);
    assembly.Begin(2, 1, 2);
    uint64_t next[] = {0, header_.LayerOffset(1)};
    for (int frame = 0; frame < 20; ++frame) {
      const uint32_t ask = random() % 2;
      uint64_t offset = next[ask];
      if (random() % 30 == 0) offset = random();
      std::string payload = container_.substr(next[ask], random() % 800);
      if (random() % 30 == 0) payload += std::string(random() % 100, 'x');
      if (!payload.empty() && random() % 30 == 0) payload[random() % payload.size()] ^= 4;
      if (assembly.Add(ask + 1, offset, payload).ok()) next[ask] += payload.size();
    }
    for (size_t group = 0; group < Context().profile.groups().size(); ++group) {
      const int ready = assembly.ReadyStep(group);
      if (ready < 0) continue;
      const GroupInput input = assembly.Input(group, ready);
      for (size_t layer = 0; layer < input.segments.size(); ++layer) {
        EXPECT_EQ(input.segments[layer]->size(), header_.layers[layer].segments[group].bytes);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::client
