#include "codec/rate_check.h"

#include <algorithm>

#include "codec/rans.h"

namespace sluice::codec {
namespace {

// Bytes of a chunk's lossy levels that it needs however few its tokens are.
double FixedBytes(const Profile& profile, const ChunkHeader& header, int num_layers) {
  double bytes = header.header_bytes;
  const uint32_t num_sinks =
      header.start_token == 0 ? std::min(profile.sink_tokens(), header.num_tokens) : 0;
  for (size_t i = 0; i < profile.geometry().planes.size(); ++i) {
    if (!profile.is_coded(i)) continue;
    bytes += static_cast<double>(num_sinks * profile.geometry().planes[i].bytes_per_token());
  }
  for (size_t g = 0; g < profile.groups().size(); ++g) {
    bytes += num_layers * static_cast<double>(profile.coded_channels(g) + kRansStateBytes);
  }
  return bytes;
}

}  // namespace

std::optional<ChunkRate> RateOf(const Profile& profile, const ChunkHeader& header) {
  const int finest = profile.num_levels() - 1;
  if (profile.calibration() == nullptr || finest < 0 ||
      header.LayerOfLevel(static_cast<Level>(finest)) < 0) {
    return std::nullopt;
  }
  const double usual = profile.calibration()->levels[finest].bits_per_element;
  const auto elements =
      static_cast<double>(profile.geometry().elements_per_token() * header.num_tokens);
  if (usual == 0 || elements == 0) return std::nullopt;
  double bytes = header.header_bytes;
  for (int layer = 0; layer <= finest; ++layer) {
    bytes += static_cast<double>(header.layers[layer].bytes());
  }
  const double fixed = FixedBytes(profile, header, finest + 1);
  return ChunkRate{.bits = 8 * bytes / elements,
                   .usual = usual,
                   .unusual = 8 * (bytes - fixed) > kUnusualRate * usual * elements};
}

}  // namespace sluice::codec
