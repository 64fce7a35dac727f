// make_lossy_golden TESTS_FOLDER: writes golden/lossy/, and the seeds of the fuzzers of segments
// and profiles below fuzz/corpus/.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "codec/bytes.h"
#include "tests/codec/lossy_golden.h"

namespace sluice::codec {
namespace {

bool WriteFile(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  return out.flush().good();
}

bool WriteGolden(const std::filesystem::path& folder) {
  bool ok = true;
  std::string digests;
  for (const auto& [name, chunk] : LossyGoldenChunks()) {
    const std::string container = chunk.Encode({.lossy = true, .lossless = true}).container;
    ok &= WriteFile(folder / (name + ".profile"), chunk.profile.bytes());
    ok &= WriteFile(folder / (name + ".chunk"), container);
    digests += DecodedDigests(name, chunk.profile, container);
  }
  ok &= WriteFile(folder / "digests.txt", digests);
  digests.clear();
  for (const auto& [name, chunk] : CalibratedGoldenChunks()) {
    const std::string container = chunk.Encode({.lossy = true, .lossless = true}).container;
    std::string decoded;
    const auto planes = DecodedLevels(chunk.profile, container);
    if (!planes.ok()) return false;
    for (const std::string& plane : *planes) decoded += plane;
    ok &= WriteFile(folder / (name + ".profile"), chunk.profile.bytes());
    ok &= WriteFile(folder / (name + ".chunk"), container);
    ok &= WriteFile(folder / (name + ".decoded"), decoded);
    digests += ValueDigests(name, chunk.profile, container);
  }
  return ok && WriteFile(folder / "values.txt", digests);
}

// As segment_fuzzer reads it; the shapes are those of its MakeProfile.
std::string SegmentSeed(uint8_t shape, ElementType type) {
  const uint32_t dim = 4 + shape / 8 % 8;
  Geometry geometry;
  geometry.rotary_tables.push_back(MakeRotaryTable(100, 4, RotaryLayout::kInterleaved));
  geometry.planes.push_back(Plane(PlaneKind::kKey, 0, 1, dim, ElementType::kBf16, 0));
  geometry.planes.push_back(Plane(PlaneKind::kValue, 0, 2, dim, type));
  const uint32_t num_tokens = 33;
  const std::string container =
      MakeChunk(geometry, shape % 2 == 0 ? 0 : 1000, num_tokens, shape).Encode().container;
  const ChunkHeader header = *ParseChunkHeader(AsBytes(container));
  const auto segments = SegmentsOf(header, AsBytes(container), 0, 2);
  ByteWriter writer;
  writer.Write<uint8_t>(shape);
  writer.Write<uint8_t>(num_tokens - 1);
  writer.Write<uint16_t>(segments[0].size());
  writer.Write<uint16_t>(segments[1].size());
  for (const auto& segment : segments) writer.WriteBytes(segment);
  return std::move(writer).Take();
}

bool WriteSeeds(const std::filesystem::path& corpus) {
  bool ok = true;
  ok &= WriteFile(corpus / "segment" / "bf16", SegmentSeed(0, ElementType::kBf16));
  ok &= WriteFile(corpus / "segment" / "fp16", SegmentSeed(9, ElementType::kFp16));
  ok &= WriteFile(corpus / "segment" / "fp32", SegmentSeed(34, ElementType::kFp32));
  ok &= WriteFile(corpus / "segment" / "fp8", SegmentSeed(59, ElementType::kFp8E4M3));
  for (const auto& [name, chunk] : LossyGoldenChunks()) {
    const std::string& bytes = chunk.profile.bytes();
    ok &= WriteFile(corpus / "profile" / name, bytes);
    ok &= WriteFile(corpus / "profile" / (name + "_unsealed"), bytes.substr(0, bytes.size() - 8));
  }
  return ok;
}

}  // namespace
}  // namespace sluice::codec

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s TESTS_FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path tests = argv[1];
  const bool ok = sluice::codec::WriteGolden(tests / "golden" / "lossy") &&
                  sluice::codec::WriteSeeds(tests / "fuzz" / "corpus");
  return ok ? 0 : 1;
}
