#include "codec/reconstruct.h"

#include <vector>

#include "codec/bytes.h"
#include "codec/plane_rows.h"
#include "codec/quantize.h"
#include "codec/status_macros.h"
#include "codec/transform_coding.h"

namespace sluice::codec {
int StepRatioOf(const Profile& profile, int layer) {
  int ratio = 1;
  for (int finer = layer + 1; finer < profile.num_levels(); ++finer) ratio *= kStepRatio;
  return ratio;
}

void ReconstructRows(const SegmentContext& context, const GroupCode& code, size_t i,
                     RotationCache& rotations, std::span<std::byte> plane) {
  const ClassTables& tables = context.profile->tables(code.layer);
  const PlaneSpec& spec = context.plane(i);
  const PlaneCode& plane_code = code.planes[i];
  const Rotation* rotation = rotations.Rows(spec);
  const size_t num_tokens = context.num_tokens;
  const int ratio = StepRatioOf(*context.profile, code.layer);
  std::vector<float> rows(spec.head_dim * num_tokens);
  for (size_t head = 0; head < spec.num_heads; ++head) {
    for (size_t dim = 0; dim < spec.head_dim; ++dim) {
      const size_t row = plane_code.first_row + head * spec.head_dim + dim;
      DequantizeRow(std::span(code.values).subspan(row * num_tokens, num_tokens),
                    tables.ShiftOf(code.layer, code.classes[row]), ratio, code.means[row],
                    plane_code.step, std::span(rows).subspan(dim * num_tokens, num_tokens));
    }
    if (rotation != nullptr) rotation->Rotate(rows);
    WriteHeadRows(spec, context.num_tokens, rows, head, plane);
  }
  std::byte* const data = plane.data();
  CopyToRuns(spec, AsBytes(plane_code.sinks), {0, context.num_sinks()},
             DenseRuns(spec, num_tokens, data));
}

absl::Status ReconstructGroup(const SegmentContext& context, const GroupCode& code,
                              RotationCache& rotations, std::span<const PlaneRuns> planes) {
  if (context.is_calibrated()) RETURN_IF_ERROR(SynthesizeGroup(context, code, rotations, planes));
  std::vector<std::byte> dense;
  for (size_t i = 0; i < planes.size(); ++i) {
    if (code.planes[i].exact) continue;
    const PlaneSpec& spec = context.plane(i);
    if (context.is_calibrated()) {
      CopyToRuns(spec, AsBytes(code.planes[i].sinks), {0, context.num_sinks()}, planes[i]);
    } else if (const std::span<std::byte> whole = WholePlane(spec, context.num_tokens, planes[i]);
               !whole.empty()) {
      ReconstructRows(context, code, i, rotations, whole);
    } else {
      dense.resize(context.num_tokens * spec.bytes_per_token());
      ReconstructRows(context, code, i, rotations, dense);
      CopyToRuns(spec, dense, {0, context.num_tokens}, planes[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReconstructGroup(const SegmentContext& context, const GroupCode& code,
                              RotationCache& rotations,
                              std::span<const std::span<std::byte>> planes) {
  std::vector<std::byte*> begins(planes.size());
  std::vector<PlaneRuns> runs(planes.size());
  for (size_t i = 0; i < planes.size(); ++i) {
    begins[i] = planes[i].data();
    runs[i] = DenseRuns(context.plane(i), context.num_tokens, begins[i]);
  }
  return ReconstructGroup(context, code, rotations, runs);
}

}  // namespace sluice::codec
