#include "tests/codec/lossy_golden.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "codec/bytes.h"
#include "codec/lossy_segment.h"
#include "codec/status_macros.h"
#include "tests/codec/test_profiles.h"

namespace sluice::codec {
namespace {

// A profile with means and few tables.
Profile SmallProfile(const Geometry& geometry, uint32_t model_layers, uint32_t seed) {
  constexpr uint8_t kTables = 5;
  ProfileParts parts = MakeProfileParts(geometry, model_layers, 0.05, seed);
  for (size_t layer = 0; layer < parts.calibration.tables.size(); ++layer) {
    ClassTables& tables = parts.calibration.tables[layer];
    std::vector<BaseFrequencies> base;
    std::vector<RefinementFrequencies> refinement;
    for (size_t c = 2; c < tables.num_classes(layer == 0) && c < 5 * kTables; c += 5) {
      if (layer == 0) base.push_back(tables.base[c].Frequencies());
      if (layer > 0) refinement.push_back(tables.refinement[c].Frequencies());
    }
    const std::vector<CentroidShift> shifts(base.size());
    tables = layer == 0 ? MakeBaseTables(base, shifts) : MakeRefinementTables(refinement);
  }
  for (GroupCalibration& group : parts.calibration.groups) {
    for (size_t i = 0; i < group.means.size(); ++i) {
      group.means[i] = 0.25f * static_cast<float>(i % 9) - 1;
    }
    for (auto& classes : group.classes) {
      for (size_t row = 0; row < classes.size(); ++row) {
        classes[row] = static_cast<uint8_t>(kTables - 1 - (kTables - 1) * row / classes.size());
      }
    }
  }
  absl::StatusOr<Profile> profile = parts.Make();
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *std::move(profile);
}

}  // namespace

std::vector<std::pair<std::string, TestChunk>> LossyGoldenChunks() {
  std::vector<std::pair<std::string, TestChunk>> chunks;
  chunks.emplace_back("keys_and_values",
                      MakeChunk(KeysAndValues(2, 3, 16, ElementType::kBf16,
                                              MakeRotaryTable(10000, 16, RotaryLayout::kHalf)),
                                0, 70, 1, 5));
  chunks.emplace_back(
      "interleaved_fp16",
      MakeChunk(KeysAndValues(1, 2, 20, ElementType::kFp16,
                              MakeRotaryTable(500000, 12, RotaryLayout::kInterleaved)),
                4096, 64, 2));
  Geometry mixed;
  mixed.planes.push_back(Plane(PlaneKind::kLatent, 0, 1, 40, ElementType::kFp32));
  mixed.planes.push_back(Plane(PlaneKind::kValue, 1, 2, 24, ElementType::kFp8E4M3));
  mixed.planes.push_back(Plane(PlaneKind::kOpaque, 1, 1, 10, ElementType::kBytes));
  chunks.emplace_back("mixed_types", MakeChunk(mixed, 64, 48, 3));
  return chunks;
}

std::string DecodedDigests(const std::string& name, const Profile& profile,
                           const std::string& container) {
  std::string lines;
  for (Level level : {Level{0}, Level{1}, Level{2}, kLossless}) {
    const auto planes = DecodeChunk(profile, AsBytes(container), level);
    std::string all;
    if (planes.ok()) {
      for (const std::string& plane : *planes) all += plane;
    }
    const std::string result =
        planes.ok() ? DigestHex(Sha256(AsBytes(all))) : std::string(planes.status().message());
    absl::StrAppend(&lines, name, " ", LevelName(level), " ", result, "\n");
  }
  return lines;
}

std::vector<std::pair<std::string, TestChunk>> CalibratedGoldenChunks() {
  std::vector<std::pair<std::string, TestChunk>> chunks;
  const Geometry two =
      KeysAndValues(2, 2, 8, ElementType::kBf16, MakeRotaryTable(10000, 8, RotaryLayout::kHalf));
  chunks.emplace_back("calibrated_two_groups",
                      MakeSpectralChunk(SmallProfile(two, 1, 1), 0, 40, 1));
  const Geometry joint = KeysAndValues(2, 2, 8, ElementType::kFp16,
                                       MakeRotaryTable(5e5, 6, RotaryLayout::kInterleaved));
  chunks.emplace_back("calibrated_joint_fp16",
                      MakeSpectralChunk(SmallProfile(joint, 2, 2), 4096, 33, 2));
  Geometry mixed;
  mixed.planes.push_back(Plane(PlaneKind::kValue, 0, 2, 8, ElementType::kFp8E4M3));
  mixed.planes.push_back(Plane(PlaneKind::kLatent, 0, 1, 20, ElementType::kFp32));
  mixed.planes.push_back(Plane(PlaneKind::kValue, 1, 2, 6));
  mixed.planes.push_back(Plane(PlaneKind::kOpaque, 1, 1, 10, ElementType::kBytes));
  chunks.emplace_back("calibrated_mixed_types",
                      MakeSpectralChunk(SmallProfile(mixed, 2, 3), 0, 48, 3));
  return chunks;
}

absl::StatusOr<std::vector<std::string>> DecodedLevels(const Profile& profile,
                                                       const std::string& container) {
  std::vector<std::string> all;
  for (int level = 0; level < profile.num_levels(); ++level) {
    ASSIGN_OR_RETURN(std::vector<std::string> planes,
                     DecodeChunk(profile, AsBytes(container), static_cast<Level>(level)));
    for (std::string& plane : planes) all.push_back(std::move(plane));
  }
  return all;
}

std::string ValueDigests(const std::string& name, const Profile& profile,
                         const std::string& container) {
  std::string lines;
  const ChunkHeader header = *ParseChunkHeader(AsBytes(container));
  for (size_t group = 0; group < profile.groups().size(); ++group) {
    const SegmentContext context{&profile, group, header.start_token, header.num_tokens};
    const auto segments =
        SegmentsOf(header, AsBytes(container), group, static_cast<Level>(profile.num_levels() - 1));
    std::vector<std::string> planes;
    for (uint32_t i = 0; i < context.spec().num_planes; ++i) {
      planes.emplace_back(header.num_tokens * context.plane(i).bytes_per_token(), '\0');
    }
    std::vector<std::span<std::byte>> out;
    for (std::string& plane : planes) out.push_back(std::as_writable_bytes(std::span(plane)));
    GroupCode code;
    for (size_t layer = 0; layer < segments.size(); ++layer) {
      const absl::Status status = layer == 0
                                      ? ReadBaseSegment(context, segments[0], out, code)
                                      : ReadRefinementSegment(context, segments[layer], code);
      const std::string result = status.ok()
                                     ? DigestHex(Sha256(std::as_bytes(std::span(code.values))))
                                     : std::string(status.message());
      absl::StrAppend(&lines, name, " ", group, " ", layer, " ", result, "\n");
    }
  }
  return lines;
}

}  // namespace sluice::codec
