#include "tests/codec/lossy_golden.h"

#include "absl/strings/str_cat.h"
#include "codec/bytes.h"

namespace sluice::codec {

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

}  // namespace sluice::codec
