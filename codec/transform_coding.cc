#include "codec/transform_coding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

#include "codec/group_transform.h"
#include "codec/quantize.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

// Memory that a thread keeps for the groups to come.
struct Scratch {
  ProductScratch product;
  AlignedBuffer columns;
  AlignedBuffer normalised;
  AlignedBuffer rows;  // of some tokens, for planes whose rows are packed
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

// The rows up to the last that is not all zero. A refined row of class 0 is if its parents are.
size_t UsedRows(const GroupCode& code, size_t num_tokens) {
  size_t rows = code.classes.size();
  for (; rows > 0 && code.classes[rows - 1] == 0; --rows) {
    if (code.layer == 0) continue;
    int16_t bits = 0;  // free of branches, so that the compiler can vectorise it
    for (int16_t value : std::span(code.values).subspan((rows - 1) * num_tokens, num_tokens)) {
      bits |= value;
    }
    if (bits != 0) break;
  }
  return rows;
}

// Calls visit(i, columns, tokens) for each coded plane and some tokens at a time.
template <typename Visit>
absl::Status ForEachColumns(const SegmentContext& context, const GroupCode& code,
                            RotationCache& rotations, Visit visit) {
  if (code.classes.empty()) return absl::OkStatus();
  const Profile& profile = *context.profile;
  Scratch& scratch = ThreadScratch();
  ASSIGN_OR_RETURN(const PackedMatrix* matrix,
                   profile.transforms().Synthesis(profile, context.group));
  const size_t num_tokens = context.num_tokens;
  const auto ratio = static_cast<float>(StepRatioOf(profile, code.layer));
  const auto values = std::span(code.values).first(UsedRows(code, num_tokens) * num_tokens);
  const size_t size = BlockedSize(num_tokens, matrix->num_outputs());
  RETURN_IF_ERROR(scratch.columns.Reserve(size * sizeof(float)));
  const std::span<float> x = scratch.columns.As<float>(size);
  size_t next = 0;  // plane
  const auto ready = [&](size_t first_token, size_t count, size_t num_columns) {
    for (; next < code.planes.size(); ++next) {
      if (code.planes[next].exact) continue;
      const TokenPlane plane = MakeTokenPlane(context, code, next);
      if (plane.first_column + plane.means.size() > num_columns) return;
      visit(next, {plane, ratio, rotations.Tokens(context.plane(next)), num_tokens, x},
            {first_token, first_token + count});
    }
    next = 0;
  };
  return matrix->Synthesize(values, num_tokens, scratch.product, x, ready);
}

constexpr size_t kSums = 16;  // independent, for the compiler to vectorise

float Square(uint16_t bf16) {
  const float value = std::bit_cast<float>(uint32_t{bf16} << 16);
  return value * value;
}

// Root of the mean square of a plane's columns, over all tokens but the sinks.
double MeasureDeviation(const TokenPlane& plane, std::span<const uint16_t> y, size_t num_columns,
                        size_t num_tokens, size_t num_sinks) {
  const size_t channels = plane.num_heads * plane.head_dim;
  double sum = 0;
  for (size_t t = num_sinks; t < num_tokens; ++t) {
    const uint16_t* row = y.data() + t * num_columns + plane.first_column;
    std::array<float, kSums> sums = {};
    for (size_t c = 0; c + kSums <= channels; c += kSums) {
      for (size_t k = 0; k < kSums; ++k) sums[k] += Square(row[c + k]);
    }
    for (size_t c = channels / kSums * kSums; c < channels; ++c) sums[0] += Square(row[c]);
    sum += std::accumulate(sums.begin(), sums.end(), 0.0f);
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
                             RotationCache& rotations, std::span<const PlaneRuns> planes) {
  AlignedBuffer& rows = ThreadScratch().rows;
  for (size_t i = 0; i < planes.size(); ++i) {
    if (HasWholeRows(context.plane(i), planes[i])) continue;
    RETURN_IF_ERROR(rows.Reserve(context.num_tokens * context.plane(i).bytes_per_token()));
  }
  return ForEachColumns(
      context, code, rotations, [&](size_t i, const ColumnTokens& columns, TokenInterval tokens) {
        const PlaneSpec& spec = context.plane(i);
        if (!HasWholeRows(spec, planes[i])) {
          const size_t num_tokens = tokens.end - tokens.begin;
          WriteTokens(columns, tokens, DensePlane(columns.plane, num_tokens, rows.data()));
          const auto values = rows.As<std::byte>(num_tokens * spec.bytes_per_token());
          CopyToRuns(spec, values, tokens, planes[i]);
          return;
        }
        ForEachRun(planes[i], tokens, [&](TokenInterval part, std::byte* run, size_t first) {
          WriteTokens(columns, part,
                      {run + first * planes[i].token_stride, planes[i].head_stride,
                       planes[i].token_stride});
        });
      });
}

absl::Status CompareGroup(const SegmentContext& context, const GroupCode& code,
                          RotationCache& rotations,
                          std::span<const std::span<const std::byte>> planes,
                          std::span<ErrorSums> sums) {
  return ForEachColumns(context, code, rotations,
                        [&](size_t i, const ColumnTokens& columns, TokenInterval tokens) {
                          tokens.begin = std::max<size_t>(tokens.begin, context.num_sinks());
                          if (tokens.begin >= tokens.end) return;
                          PlaneView<const std::byte> view =
                              DensePlane(columns.plane, context.num_tokens, planes[i].data());
                          view.data += tokens.begin * view.token_stride;
                          CompareTokens(columns, tokens, view, sums[i]);
                        });
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
  RETURN_IF_ERROR(scratch.normalised.Reserve(num_tokens * num_columns * sizeof(uint16_t)));
  const auto normalised = scratch.normalised.As<uint16_t>(num_tokens * num_columns);
  size_t first_row = 0;
  for (size_t i = 0; i < planes.size(); ++i) {
    PlaneCode& plane_code = code.planes[i];
    plane_code.exact = !profile.is_coded(context.spec().first_plane + i);
    if (plane_code.exact) continue;
    plane_code.first_row = first_row;
    first_row += context.plane(i).channels();
    const TokenPlane plane = MakeTokenPlane(context, code, i);
    const ReadReport report =
        ReadTokens(plane, rotations.Tokens(context.plane(i)), num_tokens, context.num_sinks(),
                   DensePlane(plane, num_tokens, planes[i].data()), num_columns, normalised);
    if (!report.finite) {
      MakeExact(code);
      return absl::OkStatus();
    }
    const double deviation =
        MeasureDeviation(plane, normalised, num_columns, num_tokens, context.num_sinks());
    measures[i] = {.deviation = std::max<double>(deviation, plane.step),
                   .largest = LargestElement(plane, report.largest)};
    plane_code.sinks = CopySinks(context, i, planes[i]);
  }
  ASSIGN_OR_RETURN(const GroupAnalysis* analysis,
                   profile.transforms().Analysis(profile, context.group));
  code.values.resize(num_columns * num_tokens);
  ASSIGN_OR_RETURN(const bool fits, analysis->matrix.Analyze(normalised, num_tokens, kMaxValue,
                                                             scratch.product, code.values));
  if (!fits) MakeExact(code);
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
