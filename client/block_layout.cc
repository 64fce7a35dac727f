#include "client/block_layout.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

// One of the three directions in which a plane repeats.
struct Axis {
  uint64_t stride = 0;
  uint64_t count = 0;
  uint64_t inner_bytes = 0;  // from the first to the last byte of what repeats
};

// The bytes of a plane: `row_bytes` at `offset`, repeated along the axes. Axes of one step are left
// out; the others are in falling order of their strides.
struct Footprint {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // from the first to the last byte
  std::vector<Axis> axes;
};

absl::Status Bad(size_t plane, const char* field, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("layouts[", plane, "].", field, " ", why));
}

absl::StatusOr<Footprint> MakeFootprint(const BlockLayout& layout, size_t index) {
  const codec::PlaneSpec& spec = layout.geometry.planes[index];
  const PlaneLayout& plane = layout.planes[index];
  const uint64_t element = codec::ElementBytes(spec.element_type);
  struct Named {
    const char* field;
    uint64_t stride;
    uint64_t count;
  };
  std::vector<Named> named = {{"head_stride_bytes", plane.head_stride_bytes, spec.num_heads},
                              {"token_stride_bytes", plane.token_stride_bytes, layout.block_tokens},
                              {"block_stride_bytes", plane.block_stride_bytes, layout.num_blocks}};
  std::erase_if(named, [](const Named& axis) { return axis.count == 1; });
  std::stable_sort(named.begin(), named.end(),
                   [](const Named& a, const Named& b) { return a.stride < b.stride; });
  Footprint footprint;
  footprint.offset = plane.offset_bytes;
  footprint.bytes = spec.head_dim * element;
  if (plane.offset_bytes % element != 0) return Bad(index, "offset_bytes", "is not aligned");
  for (const Named& axis : named) {
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
    footprint.axes.insert(footprint.axes.begin(), {axis.stride, axis.count, footprint.bytes});
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
