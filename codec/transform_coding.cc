#include "codec/transform_coding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "codec/group_transform.h"
#include "codec/quantize.h"
#include "codec/status_macros.h"
#include "codec/token_planes.h"

namespace sluice::codec {
namespace {

// Memory that a thread keeps for the groups to come.
struct Scratch {
  ProductScratch product;
  AlignedBuffer columns;
  std::vector<uint16_t> normalised;
};

Scratch& ThreadScratch() {
  static thread_local Scratch scratch;
  return scratch;
}

TokenPlane MakeTokenPlane(const SegmentContext& context, const GroupCode& code, size_t i) {
  const PlaneSpec& spec = context.plane(i);
  const size_t first = code.planes[i].first_row;
  const GroupCalibration& calibration = context.profile->calibration()->groups[context.group];
  return {.element_type = spec.element_type,
          .num_heads = spec.num_heads,
          .head_dim = spec.head_dim,
          .first_column = first,
          .step = static_cast<float>(context.profile->step(context.spec().first_plane + i)),
          .means = std::span(calibration.means).subspan(first, spec.channels())};
}

// The rows up to the last that is not all zero.
size_t UsedRows(const GroupCode& code) {
  size_t rows = code.classes.size();
  while (rows > 0 && code.classes[rows - 1] == 0) --rows;
  return rows;
}

// Rounds the coefficients of each token but the sinks to integers. False if one is too large.
bool RoundCoefficients(const SegmentContext& context, std::span<const float> coefficients,
                       std::vector<int16_t>& values) {
  const size_t num_tokens = context.num_tokens;
  values.resize(coefficients.size());
  bool fits = true;
  int32_t mean_parts = 0;
  for (size_t i = 0; i < values.size(); i += num_tokens) {
    fits &= QuantizeRow(coefficients.subspan(i, num_tokens), context.num_sinks(), 0, 1, mean_parts,
                        std::span(values).subspan(i, num_tokens));
  }
  return fits;
}

// Root of the mean square of a plane's columns, over all tokens but the sinks.
double MeasureDeviation(const TokenPlane& plane, std::span<const uint16_t> y, size_t num_columns,
                        size_t num_tokens, size_t num_sinks) {
  const size_t channels = plane.num_heads * plane.head_dim;
  double sum = 0;
  for (size_t t = num_sinks; t < num_tokens; ++t) {
    const uint16_t* row = y.data() + t * num_columns + plane.first_column;
    float of_token = 0;
    for (size_t c = 0; c < channels; ++c) {
      const float value = std::bit_cast<float>(uint32_t{row[c]} << 16);
      of_token += value * value;
    }
    sum += of_token;
  }
  const auto count = static_cast<double>((num_tokens - num_sinks) * channels);
  return count == 0 ? 0 : std::sqrt(sum / count) * plane.step;
}

// What no element is larger than, given the largest normalised one: a turn adds at most a pair's.
double LargestElement(const TokenPlane& plane, double largest) {
  float mean = 0;
  for (float of_channel : plane.means) mean = std::max(mean, std::abs(of_channel));
  return (largest * plane.step + mean) * std::numbers::sqrt2;
}

void MakeExact(GroupCode& code) {
  for (PlaneCode& plane : code.planes) plane = ExactPlane();
  code.values.clear();
}

}  // namespace

absl::Status SynthesizeGroup(const SegmentContext& context, const GroupCode& code,
                             RotationCache& rotations,
                             std::span<const std::span<std::byte>> planes) {
  if (code.classes.empty()) return absl::OkStatus();
  const Profile& profile = *context.profile;
  Scratch& scratch = ThreadScratch();
  ASSIGN_OR_RETURN(const PackedMatrix* matrix,
                   profile.transforms().Synthesis(profile, context.group));
  const size_t rows = UsedRows(code);
  const size_t num_tokens = context.num_tokens;
  const auto ratio = static_cast<float>(StepRatioOf(profile, code.layer));
  const auto values = std::span(code.values).first(rows * num_tokens);
  const size_t size = BlockedSize(num_tokens, matrix->num_outputs());
  RETURN_IF_ERROR(scratch.columns.Reserve(size * sizeof(float)));
  const std::span<float> columns = scratch.columns.As<float>(size);
  RETURN_IF_ERROR(matrix->Synthesize(values, num_tokens, scratch.product, columns));
  for (size_t i = 0; i < planes.size(); ++i) {
    if (code.planes[i].exact) continue;
    const TokenPlane plane = MakeTokenPlane(context, code, i);
    WriteTokens(plane, ratio, rotations.Tokens(context.plane(i)), num_tokens, columns,
                DensePlane(plane, num_tokens, planes[i].data()));
  }
  return absl::OkStatus();
}

absl::Status AnalyzeGroup(const SegmentContext& context,
                          std::span<const std::span<const std::byte>> planes,
                          RotationCache& rotations, GroupCode& code,
                          std::span<PlaneMeasure> measures) {
  const Profile& profile = *context.profile;
  Scratch& scratch = ThreadScratch();
  const size_t num_tokens = context.num_tokens;
  const size_t num_columns = profile.coded_channels(context.group);
  code.planes.assign(planes.size(), {});
  if (num_columns == 0) {
    MakeExact(code);
    return absl::OkStatus();
  }
  scratch.normalised.resize(num_tokens * num_columns);
  size_t first_row = 0;
  for (size_t i = 0; i < planes.size(); ++i) {
    PlaneCode& plane_code = code.planes[i];
    plane_code.exact = !profile.is_coded(context.spec().first_plane + i);
    if (plane_code.exact) continue;
    plane_code.first_row = first_row;
    first_row += context.plane(i).channels();
    const TokenPlane plane = MakeTokenPlane(context, code, i);
    const ReadReport report = ReadTokens(
        plane, rotations.Tokens(context.plane(i)), num_tokens, context.num_sinks(),
        DensePlane(plane, num_tokens, planes[i].data()), num_columns, scratch.normalised);
    if (!report.finite) {
      MakeExact(code);
      return absl::OkStatus();
    }
    const double deviation =
        MeasureDeviation(plane, scratch.normalised, num_columns, num_tokens, context.num_sinks());
    measures[i] = {.deviation = std::max<double>(deviation, plane.step),
                   .largest = LargestElement(plane, report.largest)};
    plane_code.sinks = CopySinks(context, i, planes[i]);
  }
  ASSIGN_OR_RETURN(const GroupAnalysis* analysis,
                   profile.transforms().Analysis(profile, context.group));
  RETURN_IF_ERROR(scratch.columns.Reserve(num_columns * num_tokens * sizeof(float)));
  const std::span<float> coefficients = scratch.columns.As<float>(num_columns * num_tokens);
  RETURN_IF_ERROR(
      analysis->matrix.Analyze(scratch.normalised, num_tokens, scratch.product, coefficients));
  if (!RoundCoefficients(context, coefficients, code.values)) MakeExact(code);
  return absl::OkStatus();
}

absl::StatusOr<double> TransformErrorBound(const SegmentContext& context, const GroupCode& code,
                                           size_t i) {
  const Profile& profile = *context.profile;
  ASSIGN_OR_RETURN(const GroupAnalysis* analysis,
                   profile.transforms().Analysis(profile, context.group));
  const PlaneSpec& spec = context.plane(i);
  const auto first = analysis->gains.begin() + static_cast<ptrdiff_t>(code.planes[i].first_row);
  const float gain = *std::max_element(first, first + static_cast<ptrdiff_t>(spec.channels()));
  const double step = profile.step(context.spec().first_plane + i);
  double bound = 0.5 * StepRatioOf(profile, code.layer) * step * gain;
  if (spec.rotary_table != PlaneSpec::kNotRotated) bound *= std::numbers::sqrt2;
  return bound;
}

}  // namespace sluice::codec
