// Lossy segments behind their checksum: a base and two refinements, read and reconstructed.
//
// Input: u8 shape, u8 tokens - 1, u16 bytes of the base, u16 bytes of the first refinement, then
// the three segments.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/bytes.h"
#include "codec/lossy_segment.h"
#include "codec/reconstruct.h"

namespace sluice::codec {
namespace {

Profile MakeProfile(uint8_t shape) {
  Geometry geometry;
  geometry.rotary_tables.push_back(MakeRotaryTable(100, 4, RotaryLayout::kInterleaved));
  const std::array<ElementType, 4> types = {ElementType::kBf16, ElementType::kFp16,
                                            ElementType::kFp32, ElementType::kFp8E4M3};
  const ElementType type = types[shape % types.size()];
  const uint32_t dim = 4 + shape / 8 % 8;
  geometry.planes.push_back({PlaneKind::kKey, ElementType::kBf16, 0, 1, dim, 0});
  geometry.planes.push_back({PlaneKind::kValue, type, 0, 2, dim, PlaneSpec::kNotRotated});
  return *Profile::Builtin(std::move(geometry));
}

void ReadSegments(ByteReader& reader) {
  uint8_t shape = 0;
  uint8_t last_token = 0;
  std::array<uint16_t, 2> sizes = {};
  if (!reader.Read("shape", shape).ok() || !reader.Read("tokens", last_token).ok() ||
      !reader.Read("base", sizes[0]).ok() || !reader.Read("refinement", sizes[1]).ok()) {
    return;
  }
  std::array<std::span<const std::byte>, 3> segments;
  for (size_t l = 0; l < segments.size(); ++l) {
    const size_t size = l < 2 ? std::min<size_t>(sizes[l], reader.remaining()) : reader.remaining();
    (void)reader.ReadBytes("segment", size, segments[l]);
  }
  const Profile profile = MakeProfile(shape);
  const uint32_t start_token = shape % 2 == 0 ? 0 : 1000;
  const SegmentContext context{&profile, 0, start_token, uint32_t{last_token} + 1};
  std::vector<std::string> planes;
  std::vector<std::span<std::byte>> out;
  for (const PlaneSpec& spec : profile.geometry().planes) {
    planes.emplace_back(context.num_tokens * spec.bytes_per_token(), '\0');
  }
  for (std::string& plane : planes) out.push_back(std::as_writable_bytes(std::span(plane)));
  GroupCode code;
  if (!ReadBaseSegment(context, segments[0], out, code).ok()) return;
  RotationCache rotations(profile, start_token, context.num_tokens);
  for (size_t l = 0; l < segments.size(); ++l) {
    if (l > 0 && !ReadRefinementSegment(context, segments[l], code).ok()) return;
    if (!ReconstructGroup(context, code, rotations, out).ok()) return;
  }
}

}  // namespace
}  // namespace sluice::codec

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::codec::ByteReader reader({reinterpret_cast<const std::byte*>(data), size});
  sluice::codec::ReadSegments(reader);
  return 0;
}
