#include "codec/group_encoder.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "codec/class_choice.h"
#include "codec/class_prediction.h"
#include "codec/elements.h"
#include "codec/plane_rows.h"
#include "codec/quantize.h"
#include "codec/row_coding.h"
#include "codec/status_macros.h"
#include "codec/transform_coding.h"

namespace sluice::codec {
namespace {

// Reads a plane into rows, keys un-rotated.
std::vector<float> ReadRows(const SegmentContext& context, size_t i,
                            std::span<const std::byte> plane, RotationCache& rotations) {
  const PlaneSpec& spec = context.plane(i);
  const Rotation* rotation = rotations.Rows(spec);
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
                   RotationCache& rotations, GroupCode& code, PlaneMeasure& measure) {
  const double relative_step = context.profile->step(context.spec().first_plane + i);
  if (relative_step == 0) return false;
  const size_t num_tokens = context.num_tokens;
  const size_t num_rows = context.plane(i).channels();
  const std::vector<float> rows = ReadRows(context, i, plane, rotations);
  std::vector<double> means(num_rows);
  const Spread spread = MeasureSpread(rows, num_tokens, context.num_sinks(), means);
  measure = {spread.rms, spread.largest};
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

// A built-in profile: each plane for itself.
void QuantizePlanes(const SegmentContext& context,
                    std::span<const std::span<const std::byte>> planes, RotationCache& rotations,
                    GroupCode& code, std::span<PlaneMeasure> measures) {
  code.planes.resize(planes.size());
  for (size_t i = 0; i < planes.size(); ++i) {
    if (!QuantizePlane(context, i, planes[i], rotations, code, measures[i])) {
      code.planes[i].exact = true;
    }
  }
  code.classes.resize(code.means.size());
}

// The largest error of a plane of a built-in profile at the level of `code`: half a bin and a
// centroid's shift, turned into one dimension of a rotated pair at worst.
double RowErrorBound(const SegmentContext& context, const GroupCode& code, size_t i) {
  const PlaneSpec& spec = context.plane(i);
  const PlaneCode& plane = code.planes[i];
  int shift = 0;
  for (size_t row = plane.first_row; row < plane.first_row + spec.channels(); ++row) {
    const CentroidShift of_row =
        context.profile->tables(code.layer).ShiftOf(code.layer, code.classes[row]);
    shift = std::max<int>({shift, of_row.one, of_row.more});
  }
  const double level_step = plane.step * StepRatioOf(*context.profile, code.layer);
  const double bound = (0.5 + shift / 256.0) * level_step;
  return spec.rotary_table == PlaneSpec::kNotRotated ? bound : bound * std::numbers::sqrt2;
}

// The same for any profile, and what float steps and the element type add.
absl::StatusOr<double> ErrorBound(const SegmentContext& context, const GroupCode& code, size_t i,
                                  double largest) {
  double bound = 0;
  if (context.is_calibrated()) {
    ASSIGN_OR_RETURN(bound, TransformErrorBound(context, code, i));
  } else {
    bound = RowErrorBound(context, code, i);
  }
  bound += (largest + bound) * kFloatSlack;
  return bound + RoundingError(context.plane(i).element_type, largest + bound);
}

// The errors of the group at the level of `code`: all elements of the planes as the decoder makes
// them on this machine, sinks included, against the originals. False if one passes its bound, which
// only a profile whose basis is not what it should be can bring about.
absl::StatusOr<bool> AddErrors(const SegmentContext& context, const GroupCode& code,
                               std::span<const std::span<const std::byte>> planes,
                               std::span<const PlaneMeasure> measures, RotationCache& rotations,
                               ErrorReport& report) {
  std::vector<ErrorSums> sums(planes.size());
  if (context.is_calibrated()) {
    RETURN_IF_ERROR(CompareGroup(context, code, rotations, planes, sums));
  }
  bool bounded = true;
  std::vector<std::byte> decoded;
  for (size_t i = 0; i < planes.size(); ++i) {
    const size_t elements = context.plane(i).channels() * context.num_tokens;
    if (code.planes[i].exact) {
      report.AddExact(elements);
      continue;
    }
    const double deviation = measures[i].deviation;
    ASSIGN_OR_RETURN(const double bound, ErrorBound(context, code, i, measures[i].largest));
    if (context.is_calibrated()) {
      bounded &= report.Add(elements, sums[i], deviation, bound);
      continue;
    }
    decoded.resize(planes[i].size());
    ReconstructRows(context, code, i, rotations, decoded);
    bounded &= report.Add(context.plane(i), planes[i], decoded, deviation, bound);
  }
  return bounded;
}

// Codes the values of `code`, at the finest level, as segments of all layers. False, and the
// arguments are unspecified, if an error passes its bound.
absl::StatusOr<bool> EncodeLayers(const SegmentContext& context,
                                  std::span<const std::span<const std::byte>> planes,
                                  std::span<const PlaneMeasure> measures, RotationCache& rotations,
                                  GroupCode code, std::span<std::string> segments,
                                  std::span<ErrorReport> reports) {
  // Values of all levels, the coarsest first.
  std::vector<std::vector<int16_t>> values(segments.size());
  values.back() = std::move(code.values);
  for (size_t layer = segments.size() - 1; layer > 0; --layer) {
    values[layer - 1].resize(values[layer].size());
    SetParents(values[layer], values[layer - 1]);
  }
  const Profile& profile = *context.profile;
  code.classes.resize(values.back().size() / context.num_tokens);
  for (size_t layer = 0; layer < segments.size(); ++layer) {
    code.layer = static_cast<int>(layer);
    code.values = std::move(values[layer]);
    const ClassTables& tables = profile.tables(code.layer);
    if (layer == 0) {
      ChooseBaseClasses(tables, context.num_tokens, code.values,
                        PredictBaseClasses(profile, context.group), code.classes);
      segments[layer] = WriteBaseSegment(context, code, planes);
    } else {
      const std::vector<uint8_t> predictions =
          PredictRefinementClasses(profile, context.group, code.layer, code.classes);
      ChooseRefinementClasses(tables, context.num_tokens, code.values, predictions, code.classes);
      segments[layer] = WriteRefinementSegment(context, predictions, code);
    }
    ASSIGN_OR_RETURN(const bool bounded,
                     AddErrors(context, code, planes, measures, rotations, reports[layer]));
    if (!bounded) return false;
  }
  return true;
}

}  // namespace

absl::Status EncodeLossyGroup(const SegmentContext& context,
                              std::span<const std::span<const std::byte>> planes,
                              RotationCache& rotations, std::span<std::string> segments,
                              std::span<ErrorReport> reports) {
  GroupCode code;
  std::vector<PlaneMeasure> measures(planes.size());
  if (context.is_calibrated()) {
    RETURN_IF_ERROR(AnalyzeGroup(context, planes, rotations, code, measures));
  } else {
    QuantizePlanes(context, planes, rotations, code, measures);
  }
  const std::vector<ErrorReport> before(reports.begin(), reports.end());
  ASSIGN_OR_RETURN(const bool bounded, EncodeLayers(context, planes, measures, rotations,
                                                    std::move(code), segments, reports));
  if (bounded) return absl::OkStatus();
  std::copy(before.begin(), before.end(), reports.begin());
  GroupCode exact;
  exact.planes.assign(planes.size(), ExactPlane());
  return EncodeLayers(context, planes, measures, rotations, std::move(exact), segments, reports)
      .status();
}

}  // namespace sluice::codec
