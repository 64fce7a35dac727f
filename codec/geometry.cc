#include "codec/geometry.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

absl::Status OutOfRange(const std::string& field, uint64_t value, uint64_t low, uint64_t high) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", not in ", low, "..", high));
}

absl::Status ValidateRotaryTable(const std::string& name, const RotaryTable& table) {
  if (table.layout != RotaryLayout::kHalf && table.layout != RotaryLayout::kInterleaved) {
    return absl::InvalidArgumentError(absl::StrCat(name, ".layout is not known"));
  }
  const size_t pairs = table.inverse_frequencies.size();
  if (pairs < 1 || pairs > Geometry::kMaxRotaryPairs) {
    return OutOfRange(name + " number of pairs", pairs, 1, Geometry::kMaxRotaryPairs);
  }
  if (table.first_dim > Geometry::kMaxHeadDim) {
    return OutOfRange(name + ".first_dim", table.first_dim, 0, Geometry::kMaxHeadDim);
  }
  for (double frequency : table.inverse_frequencies) {
    if (!(frequency >= 0 && frequency <= Geometry::kMaxInverseFrequency)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " inverse frequency is ", frequency,
                                                     ", not in 0..",
                                                     Geometry::kMaxInverseFrequency));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateShape(const std::string& name, const PlaneSpec& plane) {
  if (plane.kind < PlaneKind::kKey || plane.kind > PlaneKind::kOpaque) {
    return absl::InvalidArgumentError(absl::StrCat(name, ".kind is not known"));
  }
  if (ElementBytes(plane.element_type) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, ".element_type is not known"));
  }
  const bool opaque = plane.kind == PlaneKind::kOpaque;
  if (opaque != (plane.element_type == ElementType::kBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".element_type: opaque planes, and no others, are bytes"));
  }
  const uint32_t max_heads = opaque ? 1 : Geometry::kMaxHeads;
  if (plane.num_heads < 1 || plane.num_heads > max_heads) {
    return OutOfRange(name + ".num_heads", plane.num_heads, 1, max_heads);
  }
  if (plane.head_dim < 1 || plane.head_dim > Geometry::kMaxHeadDim) {
    return OutOfRange(name + ".head_dim", plane.head_dim, 1, Geometry::kMaxHeadDim);
  }
  if (plane.channels() > Geometry::kMaxChannels) {
    return OutOfRange(name + " number of channels", plane.channels(), 1, Geometry::kMaxChannels);
  }
  return absl::OkStatus();
}

absl::Status ValidateRotary(const std::string& name, const PlaneSpec& plane,
                            const std::vector<RotaryTable>& tables) {
  if (plane.rotary_table == PlaneSpec::kNotRotated) return absl::OkStatus();
  if (plane.rotary_table < 0 || static_cast<size_t>(plane.rotary_table) >= tables.size()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ".rotary_table is ", plane.rotary_table,
                                                   ", but there are ", tables.size(), " tables"));
  }
  if (plane.kind != PlaneKind::kKey && plane.kind != PlaneKind::kLatent) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".rotary_table: only keys and latents are rotated"));
  }
  const RotaryTable& table = tables[plane.rotary_table];
  if (table.first_dim + 2 * table.inverse_frequencies.size() > plane.head_dim) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".rotary_table turns more dimensions than head_dim ", plane.head_dim));
  }
  return absl::OkStatus();
}

// Keys before values in the order of model layers; a model layer has at most one of each.
bool InOrder(const PlaneSpec& before, const PlaneSpec& after) {
  if (before.model_layer != after.model_layer) return before.model_layer < after.model_layer;
  if (before.kind != after.kind) return before.kind < after.kind;
  return before.kind == PlaneKind::kLatent || before.kind == PlaneKind::kOpaque;
}

}  // namespace

size_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kBf16:
    case ElementType::kFp16:
      return 2;
    case ElementType::kFp32:
      return 4;
    case ElementType::kFp8E4M3:
    case ElementType::kFp8E5M2:
    case ElementType::kBytes:
      return 1;
  }
  return 0;
}

bool IsQuantisable(ElementType type) {
  return type == ElementType::kBf16 || type == ElementType::kFp16 || type == ElementType::kFp32;
}

RotaryTable MakeRotaryTable(double theta, uint32_t rotary_dim, RotaryLayout layout) {
  RotaryTable table;
  table.layout = layout;
  table.inverse_frequencies.resize(rotary_dim / 2);
  for (size_t p = 0; p < table.inverse_frequencies.size(); ++p) {
    table.inverse_frequencies[p] = std::pow(theta, -2.0 * static_cast<double>(p) / rotary_dim);
  }
  return table;
}

size_t Geometry::bytes_per_token() const {
  size_t sum = 0;
  for (const PlaneSpec& plane : planes) sum += plane.bytes_per_token();
  return sum;
}

size_t Geometry::elements_per_token() const {
  size_t sum = 0;
  for (const PlaneSpec& plane : planes) sum += plane.channels();
  return sum;
}

absl::Status Geometry::Validate() const {
  if (rotary_tables.size() > kMaxRotaryTables) {
    return OutOfRange("number of rotary tables", rotary_tables.size(), 0, kMaxRotaryTables);
  }
  for (size_t i = 0; i < rotary_tables.size(); ++i) {
    RETURN_IF_ERROR(ValidateRotaryTable(absl::StrCat("rotary_tables[", i, "]"), rotary_tables[i]));
  }
  if (planes.empty() || planes.size() > kMaxPlanes) {
    return OutOfRange("number of planes", planes.size(), 1, kMaxPlanes);
  }
  for (size_t i = 0; i < planes.size(); ++i) {
    const std::string name = absl::StrCat("planes[", i, "]");
    RETURN_IF_ERROR(ValidateShape(name, planes[i]));
    RETURN_IF_ERROR(ValidateRotary(name, planes[i], rotary_tables));
    if (i > 0 && !InOrder(planes[i - 1], planes[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ".model_layer or .kind is out of order"));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::codec
