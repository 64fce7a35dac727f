// How many model layers a group has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/calibrate/calibrate.h"
#include "codec/calibrate/group_basis.h"

namespace sluice::codec {

// Groups of so many model layers; the last may have fewer.
std::vector<GroupSpec> MakeGroups(const Geometry& geometry, uint32_t group_layers);
uint32_t CountModelLayers(const Geometry& geometry);
// Bytes of all bases of a profile with these groups.
uint64_t BasisBytes(const Geometry& geometry, std::span<const double> steps,
                    std::span<const GroupSpec> groups);

}  // namespace sluice::codec
