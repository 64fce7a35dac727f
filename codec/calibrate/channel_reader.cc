#include "codec/calibrate/channel_reader.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "codec/plane_rows.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

bool IsGood(float value) { return std::abs(value) <= kMaxTrainingValue; }

// The first token with a value that is not good; rows are [dim][tokens]. Size if there is none.
size_t FirstBadToken(std::span<const float> rows, size_t num_tokens) {
  if (std::ranges::all_of(rows, IsGood)) return num_tokens;
  size_t first = num_tokens;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!IsGood(rows[i])) first = std::min(first, i % num_tokens);
  }
  return first;
}

}  // namespace

GroupChannels ChannelsOf(const Geometry& geometry, std::span<const double> steps, GroupSpec spec) {
  GroupChannels group = {.spec = spec};
  for (size_t i = spec.first_plane; i < spec.first_plane + spec.num_planes; ++i) {
    if (steps[i] == 0) continue;
    group.planes.push_back(i);
    group.first_channels.push_back(group.count);
    group.count += geometry.planes[i].channels();
  }
  return group;
}

ChannelReader::ChannelReader(const Contexts& contexts)
    : contexts_(contexts), rotations_(contexts.geometry.rotary_tables.size()) {}

const Rotation& ChannelReader::RotationOf(const TokenSpan& span, size_t table) {
  if (span.begin != rotated_.begin || span.end != rotated_.end) {
    for (auto& rotation : rotations_) rotation.reset();
    rotated_ = span;
  }
  std::optional<Rotation>& rotation = rotations_[table];
  if (!rotation) {
    rotation.emplace(contexts_.geometry.rotary_tables[table], span.begin, span.size());
  }
  return *rotation;
}

absl::Status ChannelReader::ReadPlane(const TokenSpan& span, size_t plane, std::span<float> rows) {
  const TrainingContext& context = contexts_.contexts[span.context];
  const PlaneSpec& spec = contexts_.geometry.planes[plane];
  PlaneSpec head_spec = spec;
  head_spec.num_heads = 1;
  const size_t token_bytes = head_spec.bytes_per_token();
  const size_t head_values = size_t{spec.head_dim} * span.size();
  for (size_t head = 0; head < spec.num_heads; ++head) {
    const auto bytes = context.planes[plane].subspan(
        (head * context.num_tokens + span.begin - context.first_token) * token_bytes,
        span.size() * token_bytes);
    const auto head_rows = rows.subspan(head * head_values, head_values);
    ReadHeadRows(head_spec, span.size(), bytes, 0, head_rows);
    if (const size_t bad = FirstBadToken(head_rows, span.size()); bad < span.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(context.name, ": ", contexts_.plane_names[plane], ", token ",
                       span.begin + bad, ": a value is NaN, Inf or larger than 2^60"));
    }
    if (spec.rotary_table >= 0) RotationOf(span, spec.rotary_table).Unrotate(head_rows);
  }
  return absl::OkStatus();
}

absl::Status ReadNormalised(ChannelReader& reader, const GroupChannels& group,
                            const TokenSpan& span, uint32_t sink_tokens,
                            std::span<const std::vector<double>> means,
                            std::span<const double> steps, Dense<float>& y) {
  const size_t num_tokens = span.size();
  const size_t num_sinks = span.num_sinks(sink_tokens);
  if (y.rows != group.count || y.columns != num_tokens) y = Dense<float>(group.count, num_tokens);
  for (size_t i = 0; i < group.planes.size(); ++i) {
    const size_t plane = group.planes[i];
    const size_t channels = means[plane].size();
    const auto rows =
        std::span(y.values).subspan(group.first_channels[i] * num_tokens, channels * num_tokens);
    RETURN_IF_ERROR(reader.ReadPlane(span, plane, rows));
    const auto scale = static_cast<float>(1 / steps[plane]);
    for (size_t channel = 0; channel < channels; ++channel) {
      const auto mean = static_cast<float>(means[plane][channel]);
      const auto row = rows.subspan(channel * num_tokens, num_tokens);
      for (float& value : row) value = (value - mean) * scale;
      std::ranges::fill(row.first(num_sinks), 0.0f);
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::codec
