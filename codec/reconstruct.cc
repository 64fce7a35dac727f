#include "codec/reconstruct.h"

#include <cstring>
#include <vector>

#include "codec/plane_rows.h"
#include "codec/quantize.h"
#include "codec/status_macros.h"
#include "codec/transform_coding.h"

namespace sluice::codec {
namespace {

void RestoreSinks(const SegmentContext& context, size_t i, const std::string& sinks,
                  std::span<std::byte> plane) {
  const PlaneSpec& spec = context.plane(i);
  const size_t token_bytes = spec.head_dim * ElementBytes(spec.element_type);
  const size_t sink_bytes = context.num_sinks() * token_bytes;
  if (sink_bytes == 0) return;
  for (size_t head = 0; head < spec.num_heads; ++head) {
    std::memcpy(plane.data() + head * context.num_tokens * token_bytes,
                sinks.data() + head * sink_bytes, sink_bytes);
  }
}

// The built-in profile: a row is a channel.
void ReconstructPlane(const SegmentContext& context, const GroupCode& code, size_t i,
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
}

}  // namespace

int StepRatioOf(const Profile& profile, int layer) {
  int ratio = 1;
  for (int finer = layer + 1; finer < profile.num_levels(); ++finer) ratio *= kStepRatio;
  return ratio;
}

absl::Status ReconstructGroup(const SegmentContext& context, const GroupCode& code,
                              RotationCache& rotations,
                              std::span<const std::span<std::byte>> planes) {
  if (context.is_calibrated()) RETURN_IF_ERROR(SynthesizeGroup(context, code, rotations, planes));
  for (size_t i = 0; i < planes.size(); ++i) {
    if (code.planes[i].exact) continue;
    if (!context.is_calibrated()) ReconstructPlane(context, code, i, rotations, planes[i]);
    RestoreSinks(context, i, code.planes[i].sinks, planes[i]);
  }
  return absl::OkStatus();
}

}  // namespace sluice::codec
