#include "codec/lossy_segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "codec/quantize.h"
#include "codec/class_prediction.h"
#include "codec/reconstruct.h"
#include "tests/codec/test_chunks.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

// A small group and the segments of its three layers.
class LossySegmentTest : public ::testing::Test {
 protected:
  LossySegmentTest() {
    const EncodedChunk encoded = chunk_.Encode();
    const ChunkHeader header = *ParseChunkHeader(AsBytes(encoded.container));
    for (const auto& segment : SegmentsOf(header, AsBytes(encoded.container), 0, 2)) {
      segments_.emplace_back(AsText(segment));
    }
  }

  // Reads segments without their checksums, as only a bug or an attacker would.
  absl::Status Read(const std::vector<std::string>& segments, GroupCode& code) {
    std::vector<std::string> planes = chunk_.planes;
    std::vector<std::span<std::byte>> out;
    for (std::string& plane : planes) out.push_back(std::as_writable_bytes(std::span(plane)));
    absl::Status status = ReadBaseSegment(context_, AsBytes(segments[0]), out, code);
    for (size_t l = 1; l < segments.size() && status.ok(); ++l) {
      status = ReadRefinementSegment(context_, AsBytes(segments[l]), code);
    }
    RotationCache rotations(chunk_.profile, 0, chunk_.num_tokens);
    return status.ok() ? ReconstructGroup(context_, code, rotations, out) : status;
  }

  // The error after `value` is written at `offset` of a segment.
  template <typename T>
  std::string ErrorWith(size_t layer, size_t offset, T value) {
    std::vector<std::string> bad = segments_;
    std::memcpy(bad[layer].data() + offset, &value, sizeof(value));
    GroupCode code;
    return std::string(Read(bad, code).message());
  }

  const TestChunk chunk_ = MakeChunk(
      KeysAndValues(1, 1, 6, ElementType::kBf16, MakeRotaryTable(100, 4, RotaryLayout::kHalf)), 0,
      37, 4);
  const SegmentContext context_{&chunk_.profile, 0, 0, 37};
  std::vector<std::string> segments_;
};

TEST_F(LossySegmentTest, WritesWhatItReads) {
  GroupCode code;
  ASSERT_TRUE(Read({segments_[0]}, code).ok());
  EXPECT_EQ(code.layer, 0);
  EXPECT_EQ(code.means.size(), 12u);
  EXPECT_EQ(code.planes[1].first_row, 6u);
  EXPECT_EQ(WriteBaseSegment(context_, code, chunk_.spans()), segments_[0]);
  for (size_t l = 1; l < 3; ++l) {
    const std::vector<uint8_t> predictions =
        PredictRefinementClasses(chunk_.profile, 0, static_cast<int>(l), code.classes);
    ASSERT_TRUE(ReadRefinementSegment(context_, AsBytes(segments_[l]), code).ok());
    EXPECT_EQ(code.layer, static_cast<int>(l));
    EXPECT_EQ(WriteRefinementSegment(context_, predictions, code), segments_[l]);
  }
}

TEST_F(LossySegmentTest, SinksAreTheFirstTokensOfTheContext) {
  EXPECT_EQ(context_.num_sinks(), 4u);
  EXPECT_EQ((SegmentContext{&chunk_.profile, 0, 1, 37}).num_sinks(), 0u);
  EXPECT_EQ((SegmentContext{&chunk_.profile, 0, 0, 2}).num_sinks(), 2u);
  EXPECT_EQ(CopySinks(context_, 0, AsBytes(chunk_.planes[0])), chunk_.planes[0].substr(0, 4 * 12));
}

TEST_F(LossySegmentTest, ErrorsNameTheField) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(ErrorWith<uint8_t>(0, 0, 0), "");
  EXPECT_THAT(ErrorWith<uint8_t>(0, 0, 1), HasSubstr("layer of the segment"));
  EXPECT_THAT(ErrorWith<uint8_t>(1, 0, 2), HasSubstr("layer of the segment"));
  EXPECT_THAT(ErrorWith<uint8_t>(2, 0, 1), HasSubstr("layer of the segment"));
  EXPECT_THAT(ErrorWith<uint8_t>(0, 1, 2), HasSubstr("planes[0].mode"));
  for (float step : {nan, 0.0f, -1.0f, 1e-38f, std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(ErrorWith(0, 2, step), HasSubstr("planes[0].step"));
    EXPECT_THAT(ErrorWith(0, 7, step), HasSubstr("planes[1].step"));
  }
  EXPECT_THAT(ErrorWith<uint8_t>(0, 14, 99), HasSubstr("planes[0].sinks"));
  std::vector<std::string> bad = segments_;
  bad[0] += '\0';
  GroupCode code;
  EXPECT_THAT(std::string(Read(bad, code).message()), HasSubstr("base segment"));
  bad = segments_;
  bad[2] += '\0';
  EXPECT_THAT(std::string(Read(bad, code).message()), HasSubstr("refinement segment"));
}

TEST_F(LossySegmentTest, ProfileDecidesWhichPlanesMayBeCoded) {
  const TestChunk exact = MakeChunk(KeysAndValues(1, 1, 6, ElementType::kFp8E4M3), 0, 37, 4);
  const SegmentContext context{&exact.profile, 0, 0, 37};
  std::vector<std::string> planes = exact.planes;
  const std::vector<std::span<std::byte>> out = {std::as_writable_bytes(std::span(planes[0])),
                                                 std::as_writable_bytes(std::span(planes[1]))};
  GroupCode code;
  const absl::Status status = ReadBaseSegment(context, AsBytes(segments_[0]), out, code);
  EXPECT_THAT(std::string(status.message()), HasSubstr("keeps this plane exact"));
}

// The checksum guards against damage; behind it, damage may decode to other values, but no more.
TEST_F(LossySegmentTest, DamageBehindTheChecksumIsHarmless) {
  GroupCode code;
  for (size_t layer = 0; layer < segments_.size(); ++layer) {
    for (size_t bit = 0; bit < 8 * segments_[layer].size(); ++bit) {
      std::vector<std::string> bad = segments_;
      bad[layer][bit / 8] = static_cast<char>(bad[layer][bit / 8] ^ 1 << bit % 8);
      (void)Read(bad, code);
    }
    for (size_t size = 0; size < segments_[layer].size(); ++size) {
      std::vector<std::string> bad = segments_;
      bad[layer].resize(size);
      EXPECT_FALSE(Read(bad, code).ok()) << "layer " << layer << " cut to " << size;
    }
  }
}

TEST_F(LossySegmentTest, RandomBytesAreHarmless) {
  const uint32_t seed = 17;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  GroupCode code;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::string> bad = segments_;
    std::string& segment = bad[random() % bad.size()];
    const size_t begin = random() % segment.size();
    for (size_t k = begin; k < std::min(begin + 1 + random() % 20, segment.size()); ++k) {
      segment[k] = static_cast<char>(random());
    }
    (void)Read(bad, code);
  }
}

}  // namespace
}  // namespace sluice::codec
