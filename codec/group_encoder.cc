#include "codec/group_encoder.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "codec/class_choice.h"
#include "codec/elements.h"
#include "codec/plane_rows.h"
#include "codec/quantize.h"
#include "codec/row_coding.h"

namespace sluice::codec {
namespace {

// Reads a plane into rows, keys un-rotated.
std::vector<float> ReadRows(const SegmentContext& context, size_t i,
                            std::span<const std::byte> plane, RotationCache& rotations) {
  const PlaneSpec& spec = context.plane(i);
  const Rotation* rotation = rotations.Get(spec);
  const size_t head_size = size_t{spec.head_dim} * context.num_tokens;
  std::vector<float> rows(spec.num_heads * head_size);
  for (size_t head = 0; head < spec.num_heads; ++head) {
    const std::span<float> head_rows = std::span(rows).subspan(head * head_size, head_size);
    ReadHeadRows(spec, context.num_tokens, plane, head, head_rows);
    if (rotation != nullptr) rotation->Unrotate(head_rows);
  }
  return rows;
}

// Appends the plane's rows to `code`. False, and nothing appended, if they cannot be quantised.
bool QuantizePlane(const SegmentContext& context, size_t i, std::span<const std::byte> plane,
                   RotationCache& rotations, GroupCode& code, Spread& spread) {
  const double relative_step = context.profile->relative_step(context.spec().first_plane + i);
  if (relative_step == 0) return false;
  const size_t num_tokens = context.num_tokens;
  const size_t num_rows = context.plane(i).channels();
  const std::vector<float> rows = ReadRows(context, i, plane, rotations);
  std::vector<double> means(num_rows);
  spread = MeasureSpread(rows, num_tokens, context.num_sinks(), means);
  const double step = relative_step * spread.rms;
  if (!spread.finite || !IsCodableStep(step)) return false;

  PlaneCode& plane_code = code.planes[i];
  const size_t first_row = code.means.size();
  code.means.resize(first_row + num_rows);
  code.values.resize(code.means.size() * num_tokens);
  for (size_t r = 0; r < num_rows; ++r) {
    const size_t row = first_row + r;
    if (!QuantizeRow(std::span(rows).subspan(r * num_tokens, num_tokens), context.num_sinks(),
                     means[r], static_cast<float>(step), code.means[row],
                     std::span(code.values).subspan(row * num_tokens, num_tokens))) {
      code.means.resize(first_row);
      code.values.resize(first_row * num_tokens);
      return false;
    }
  }
  plane_code = {.exact = false,
                .step = static_cast<float>(step),
                .first_row = first_row,
                .sinks = CopySinks(context, i, plane)};
  return true;
}

// The largest error of a plane at the level of `code`: half a bin and a centroid's shift, turned
// into one dimension of a rotated pair at worst, and what float steps and the element type add.
double ErrorBound(const SegmentContext& context, const GroupCode& code, size_t i, double largest) {
  const PlaneSpec& spec = context.plane(i);
  const PlaneCode& plane = code.planes[i];
  int shift = 0;
  for (size_t row = plane.first_row; row < plane.first_row + spec.channels(); ++row) {
    const CentroidShift of_row = BuiltinTables().ShiftOf(code.layer, code.classes[row]);
    shift = std::max<int>({shift, of_row.one, of_row.more});
  }
  const double level_step = plane.step * StepRatioOf(*context.profile, code.layer);
  double bound = (0.5 + shift / 256.0) * level_step;
  if (spec.rotary_table != PlaneSpec::kNotRotated) bound *= std::numbers::sqrt2;
  bound += (largest + bound) * kFloatSlack;
  return bound + RoundingError(spec.element_type, largest + bound);
}

void AddErrors(const SegmentContext& context, const GroupCode& code,
               std::span<const std::span<const std::byte>> planes, std::span<const Spread> spreads,
               RotationCache& rotations, ErrorReport& report) {
  std::vector<std::byte> decoded;
  for (size_t i = 0; i < planes.size(); ++i) {
    if (code.planes[i].exact) {
      report.AddExact(context.plane(i).channels() * context.num_tokens);
      continue;
    }
    decoded.resize(planes[i].size());
    ReconstructPlane(context, code, i, rotations, decoded);
    report.Add(context.plane(i), planes[i], decoded, spreads[i].rms,
               ErrorBound(context, code, i, spreads[i].largest));
  }
}

}  // namespace

void EncodeLossyGroup(const SegmentContext& context,
                      std::span<const std::span<const std::byte>> planes, RotationCache& rotations,
                      std::span<std::vector<std::string>> layers, std::span<ErrorReport> reports) {
  GroupCode code;
  code.planes.resize(planes.size());
  std::vector<Spread> spreads(planes.size());
  for (size_t i = 0; i < planes.size(); ++i) {
    if (!QuantizePlane(context, i, planes[i], rotations, code, spreads[i])) {
      code.planes[i].exact = true;
    }
  }
  code.classes.resize(code.means.size());

  // Values of all levels, the coarsest first.
  std::vector<std::vector<int16_t>> values(layers.size());
  values.back() = std::move(code.values);
  for (size_t layer = layers.size() - 1; layer > 0; --layer) {
    values[layer - 1].resize(values[layer].size());
    std::transform(values[layer].begin(), values[layer].end(), values[layer - 1].begin(), ParentOf);
  }
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    code.layer = static_cast<int>(layer);
    code.values = std::move(values[layer]);
    if (layer == 0) {
      ChooseBaseClasses(BuiltinTables(), context.num_tokens, code.values, code.classes);
      layers[layer].push_back(WriteBaseSegment(context, code, planes));
    } else {
      const std::vector<uint8_t> parents = code.classes;
      ChooseRefinementClasses(BuiltinTables(), context.num_tokens, code.values, parents,
                              code.classes);
      layers[layer].push_back(WriteRefinementSegment(context, parents, code));
    }
    AddErrors(context, code, planes, spreads, rotations, reports[layer]);
  }
}

}  // namespace sluice::codec
