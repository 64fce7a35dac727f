// Profile::Parse on any bytes: as they are, and with the right checksum behind them. What is
// accepted must be fit for use: a chunk that is encoded with it decodes to within the bound.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "codec/bytes.h"
#include "codec/decoder.h"
#include "codec/elements.h"
#include "codec/encoder.h"
#include "tests/golden/calibrated_cases.h"

namespace sluice::codec {
namespace {

// Larger geometries take too long to encode.
constexpr uint64_t kMaxBytesPerToken = 1 << 12;
constexpr uint32_t kTokens = 9;

// Bytes of all kinds, for floats of moderate size.
std::string MakePlane(const PlaneSpec& spec) {
  const size_t count = kTokens * spec.channels();
  std::string plane(kTokens * spec.bytes_per_token(), '\x3c');
  if (!IsQuantisable(spec.element_type)) return plane;
  std::vector<float> values(count);
  uint32_t state = spec.head_dim;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state) >> 16) / 4096;
  }
  FloatToElements(spec.element_type, values, std::as_writable_bytes(std::span(plane)));
  return plane;
}

void Use(const Profile& profile) {
  std::vector<std::string> planes;
  for (const PlaneSpec& spec : profile.geometry().planes) planes.push_back(MakePlane(spec));
  std::vector<std::span<const std::byte>> views;
  for (const std::string& plane : planes) views.push_back(AsBytes(plane));
  const auto encoded = EncodeChunk(profile, {.start_token = 64}, views, kTokens, {});
  if (!encoded.ok()) return;  // its basis is singular, and it says so
  for (const LevelReport& level : encoded->levels) {
    if (!(level.max_error <= level.error_bound)) std::abort();
  }
  if (!DecodeAllLevels(profile, encoded->container).ok()) std::abort();
}

void Check(const std::string& bytes) {
  const absl::StatusOr<Profile> profile = Profile::Parse(AsBytes(bytes));
  if (!profile.ok()) return;
  // What is accepted is whole: it keeps its bytes, and its geometry is valid.
  if (profile->bytes() != bytes || !profile->geometry().Validate().ok()) std::abort();
  if (profile->geometry().bytes_per_token() <= kMaxBytesPerToken) Use(*profile);
}

}  // namespace
}  // namespace sluice::codec

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  sluice::codec::Check(bytes);
  if (bytes.size() > sizeof(uint64_t)) {
    std::string sealed = bytes;
    sluice::codec::SealProfile(sealed);
    sluice::codec::Check(sealed);
  }
  const uint64_t checksum = sluice::codec::Checksum(sluice::codec::AsBytes(bytes));
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  sluice::codec::Check(bytes);
  return 0;
}
