#include "codec/calibrate/group_size.h"

#include "codec/calibrate/channel_reader.h"

namespace sluice::codec {

uint32_t CountModelLayers(const Geometry& geometry) {
  uint32_t layers = 0;
  for (size_t i = 0; i < geometry.planes.size(); ++i) {
    layers += i == 0 || geometry.planes[i].model_layer != geometry.planes[i - 1].model_layer;
  }
  return layers;
}

std::vector<GroupSpec> MakeGroups(const Geometry& geometry, uint32_t group_layers) {
  std::vector<GroupSpec> groups;
  uint32_t layers = 0;  // of the last group
  for (uint32_t i = 0; i < geometry.planes.size(); ++i) {
    const bool new_layer =
        i == 0 || geometry.planes[i].model_layer != geometry.planes[i - 1].model_layer;
    layers += new_layer;
    if (i == 0 || layers > group_layers) {
      groups.push_back({i, 0});
      layers = 1;
    }
    ++groups.back().num_planes;
  }
  return groups;
}

uint64_t BasisBytes(const Geometry& geometry, std::span<const double> steps,
                    std::span<const GroupSpec> groups) {
  uint64_t bytes = 0;
  for (const GroupSpec& group : groups) {
    const uint64_t channels = ChannelsOf(geometry, steps, group).count;
    bytes += channels * channels * sizeof(uint16_t);
  }
  return bytes;
}

}  // namespace sluice::codec
