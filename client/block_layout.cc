#include "client/block_layout.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

// One of the directions in which a plane repeats.
struct Axis {
  uint64_t stride = 0;
  uint64_t count = 0;
  uint64_t inner_bytes = 0;  // from the first to the last byte of what repeats
};

// The bytes of a plane: a run at `offset`, as long as nothing lies between its elements, repeated
// along the axes. Axes of one step are left out; the others are in falling order of their strides.
struct Footprint {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // from the first to the last byte
  std::vector<Axis> axes;
};

absl::Status Bad(size_t plane, const char* field, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("layouts[", plane, "].", field, " ", why));
}

struct NamedAxis {
  const char* field;
  uint64_t stride;
  uint64_t count;
};

// A tile of 0 is all of `whole`.
absl::Status CheckTile(size_t plane, const char* field, uint64_t tile, const char* stride_field,
                       uint64_t stride, const char* whole_field, uint64_t whole) {
  if (tile == 0 && stride != 0) {
    return Bad(plane, stride_field, absl::StrCat("is ", stride, ", but ", field, " is 0"));
  }
  if (tile != 0 && whole % tile != 0) {
    return Bad(plane, field,
               absl::StrCat("is ", tile, ", which does not divide ", whole_field, " ", whole));
  }
  return absl::OkStatus();
}

// The directions in which the elements of a plane repeat, in rising order of their strides.
absl::StatusOr<std::vector<NamedAxis>> AxesOf(const BlockLayout& layout, size_t index) {
  const codec::PlaneSpec& spec = layout.geometry.planes[index];
  const PlaneLayout& plane = layout.planes[index];
  RETURN_IF_ERROR(CheckTile(index, "token_tile", plane.token_tile, "token_tile_stride_bytes",
                            plane.token_tile_stride_bytes, "block_tokens", layout.block_tokens));
  RETURN_IF_ERROR(CheckTile(index, "dim_tile", plane.dim_tile, "dim_tile_stride_bytes",
                            plane.dim_tile_stride_bytes, "head_dim", spec.head_dim));
  const uint64_t element = codec::ElementBytes(spec.element_type);
  const uint64_t dim_stride = plane.dim_stride_bytes == 0 ? element : plane.dim_stride_bytes;
  const uint32_t dim_tile = plane.dim_tile == 0 ? spec.head_dim : plane.dim_tile;
  const uint32_t token_tile = plane.token_tile == 0 ? layout.block_tokens : plane.token_tile;
  std::vector<NamedAxis> axes = {
      {"dim_stride_bytes", dim_stride, dim_tile},
      {"dim_tile_stride_bytes", plane.dim_tile_stride_bytes, spec.head_dim / dim_tile},
      {"head_stride_bytes", plane.head_stride_bytes, spec.num_heads},
      {"token_stride_bytes", plane.token_stride_bytes, token_tile},
      {"token_tile_stride_bytes", plane.token_tile_stride_bytes, layout.block_tokens / token_tile},
      {"block_stride_bytes", plane.block_stride_bytes, layout.num_blocks}};
  std::erase_if(axes, [](const NamedAxis& axis) { return axis.count == 1; });
  std::stable_sort(axes.begin(), axes.end(),
                   [](const NamedAxis& a, const NamedAxis& b) { return a.stride < b.stride; });
  return axes;
}

absl::StatusOr<Footprint> MakeFootprint(const BlockLayout& layout, size_t index) {
  const PlaneLayout& plane = layout.planes[index];
  const uint64_t element = codec::ElementBytes(layout.geometry.planes[index].element_type);
  Footprint footprint;
  footprint.offset = plane.offset_bytes;
  footprint.bytes = element;
  if (plane.offset_bytes % element != 0) return Bad(index, "offset_bytes", "is not aligned");
  ASSIGN_OR_RETURN(const std::vector<NamedAxis> axes, AxesOf(layout, index));
  for (const NamedAxis& axis : axes) {
    if (axis.stride % element != 0) return Bad(index, axis.field, "is not aligned");
    if (axis.stride < footprint.bytes) {
      return Bad(index, axis.field,
                 absl::StrCat("is ", axis.stride, ", less than the ", footprint.bytes,
                              " bytes that it steps over"));
    }
    // No product below overflows: both factors are small once this has passed.
    if (axis.stride > layout.pool_bytes / (axis.count - 1)) {
      return Bad(index, axis.field, "leads out of the pool");
    }
    const bool longer_run = footprint.axes.empty() && axis.stride == footprint.bytes;
    if (!longer_run) {
      footprint.axes.insert(footprint.axes.begin(), {axis.stride, axis.count, footprint.bytes});
    }
    footprint.bytes += axis.stride * (axis.count - 1);
  }
  if (footprint.bytes > layout.pool_bytes ||
      plane.offset_bytes > layout.pool_bytes - footprint.bytes) {
    return Bad(index, "offset_bytes", "leads out of the pool");
  }
  return footprint;
}

// Are two families of ranges disjoint? The first of `b` begins `distance` after the first of `a`.
bool Disjoint(std::span<const Axis> a, uint64_t a_bytes, std::span<const Axis> b, uint64_t b_bytes,
              int64_t distance) {
  if (distance >= static_cast<int64_t>(a_bytes)) return true;
  if (-distance >= static_cast<int64_t>(b_bytes)) return true;
  if (a.empty() || b.empty() || a.front().stride != b.front().stride) return false;
  // Both repeat with the same period. Whatever steps are taken, the distance of two inner families
  // is `rest` or further by whole periods; inner families are shorter than a period, so that only
  // the two nearest can meet.
  const auto period = static_cast<int64_t>(a.front().stride);
  const int64_t rest = ((distance % period) + period) % period;
  const uint64_t a_inner = a.front().inner_bytes;
  const uint64_t b_inner = b.front().inner_bytes;
  return Disjoint(a.subspan(1), a_inner, b.subspan(1), b_inner, rest) &&
         Disjoint(a.subspan(1), a_inner, b.subspan(1), b_inner, rest - period);
}

absl::Status CheckNumbers(const BlockLayout& layout) {
  if (layout.pool_bytes == 0 || layout.pool_bytes > BlockLayout::kMaxPoolBytes) {
    return absl::InvalidArgumentError(absl::StrCat("pool_bytes is ", layout.pool_bytes, "; 1..",
                                                   BlockLayout::kMaxPoolBytes, " are allowed"));
  }
  if (layout.num_blocks == 0 || layout.num_blocks > BlockLayout::kMaxBlocks) {
    return absl::InvalidArgumentError(absl::StrCat("num_blocks is ", layout.num_blocks, "; 1..",
                                                   BlockLayout::kMaxBlocks, " are allowed"));
  }
  if (layout.block_tokens == 0 || layout.block_tokens > BlockLayout::kMaxBlockTokens) {
    return absl::InvalidArgumentError(absl::StrCat("block_tokens is ", layout.block_tokens, "; 1..",
                                                   BlockLayout::kMaxBlockTokens, " are allowed"));
  }
  if (layout.planes.size() != layout.geometry.planes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("layouts has ", layout.planes.size(),
                                                   " entries for ", layout.geometry.planes.size(),
                                                   " planes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BlockLayout::Validate() const {
  RETURN_IF_ERROR(geometry.Validate());
  RETURN_IF_ERROR(CheckNumbers(*this));
  std::vector<Footprint> footprints;
  for (size_t i = 0; i < planes.size(); ++i) {
    ASSIGN_OR_RETURN(Footprint footprint, MakeFootprint(*this, i));
    footprints.push_back(std::move(footprint));
  }
  for (size_t i = 0; i < footprints.size(); ++i) {
    for (size_t j = i + 1; j < footprints.size(); ++j) {
      const Footprint& a = footprints[i];
      const Footprint& b = footprints[j];
      const auto distance = static_cast<int64_t>(b.offset - a.offset);
      if (!Disjoint(a.axes, a.bytes, b.axes, b.bytes, distance)) {
        return absl::InvalidArgumentError(
            absl::StrCat("layouts[", i, "] and layouts[", j, "] share bytes of the pool"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
