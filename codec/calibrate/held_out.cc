#include "codec/calibrate/held_out.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "codec/bytes.h"
#include "codec/calibrate/channel_reader.h"
#include "codec/container.h"
#include "codec/decoder.h"
#include "codec/encoder.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr size_t kOriginal = 0;  // among the contexts of a pair
constexpr size_t kCopy = 1;

// The planes of a chunk, without gaps.
std::vector<std::string> CutOut(const Contexts& contexts, const TokenSpan& span) {
  std::vector<std::string> planes;
  const TrainingContext& context = contexts.contexts[span.context];
  for (size_t i = 0; i < context.planes.size(); ++i) {
    const PlaneSpec& spec = contexts.geometry.planes[i];
    const size_t token_bytes = spec.bytes_per_token() / spec.num_heads;
    std::string& bytes = planes.emplace_back();
    for (size_t head = 0; head < spec.num_heads; ++head) {
      bytes += AsText(context.planes[i].subspan(
          (head * context.num_tokens + span.begin) * token_bytes, span.size() * token_bytes));
    }
  }
  return planes;
}

TrainingContext AsContext(const TokenSpan& span, const std::vector<std::string>& planes) {
  TrainingContext context;
  context.num_tokens = span.size();
  context.first_token = span.begin;
  for (const std::string& plane : planes) context.planes.push_back(AsBytes(plane));
  return context;
}

// All planes of a chunk at a level.
absl::StatusOr<std::vector<std::string>> Decode(const Profile& profile, const ChunkHeader& header,
                                                std::span<const std::byte> container, Level level) {
  std::vector<std::string> planes;
  for (const PlaneSpec& spec : profile.geometry().planes) {
    planes.emplace_back(spec.bytes_per_token() * header.num_tokens, '\0');
  }
  for (size_t g = 0; g < profile.groups().size(); ++g) {
    const GroupSpec& spec = profile.groups()[g];
    std::vector<std::span<const std::byte>> segments;
    for (size_t layer = 0; layer <= level; ++layer) {
      segments.push_back(container.subspan(header.SegmentOffset(layer, g),
                                           header.layers[layer].segments[g].bytes));
    }
    std::vector<std::span<std::byte>> views;
    for (std::string& plane : std::span(planes).subspan(spec.first_plane, spec.num_planes)) {
      views.push_back(std::as_writable_bytes(std::span(plane)));
    }
    RETURN_IF_ERROR(DecodeGroup(profile, header, g, level, segments, views));
  }
  return planes;
}

// Mean over channels of the sum over tokens of e' M e, with M the identity where there are no
// weights. `errors` is [channels][tokens].
double WeightedSquares(const std::vector<HeadWeight>& heads, std::span<const float> errors,
                       size_t channels) {
  double sum = 0;
  if (heads.empty()) {
    for (double error : errors) sum += error * error;
    return sum / static_cast<double>(channels);
  }
  const size_t num_tokens = errors.size() / channels;
  for (const HeadWeight& head : heads) {
    const size_t dim = head.root.rows;
    Dense<float> error(dim, num_tokens), root(dim, dim), weighted(dim, num_tokens);
    std::ranges::copy(errors.first(dim * num_tokens), error.values.begin());
    std::ranges::copy(head.root.values, root.values.begin());
    Multiply(root, error, weighted);
    for (double value : weighted.values) sum += value * value;
    errors = errors.subspan(dim * num_tokens);
  }
  return sum / static_cast<double>(channels);
}

// What a level adds up to over chunks.
struct Sums {
  double bytes = 0;
  double error = 0;  // absolute, in standard deviations, over coded elements
  double max_error = 0;
  double divergence = 0;
};

class Measurement {
 public:
  Measurement(const Profile& profile, const HeldOutJudge& judge)
      : profile_(profile), judge_(judge), levels_(profile.num_levels()) {}

  absl::Status Add(const TokenSpan& span);
  std::vector<LevelQuality> Finish() const;

 private:
  // `pair` are the original and the copy.
  absl::Status Compare(const TokenSpan& span, const Contexts& pair, Sums& sums) const;

  const Profile& profile_;
  const HeldOutJudge& judge_;
  std::vector<Sums> levels_;
  double elements_ = 0;
  double coded_elements_ = 0;  // without sinks
  double tokens_ = 0;          // the same
};

absl::Status Measurement::Compare(const TokenSpan& span, const Contexts& pair, Sums& sums) const {
  ChannelReader reader(pair);
  std::vector<float> original, errors;
  for (size_t i = 0; i < pair.geometry.planes.size(); ++i) {
    if (!profile_.is_coded(i)) continue;
    const size_t channels = pair.geometry.planes[i].channels();
    original.resize(channels * span.size());
    errors.resize(original.size());
    RETURN_IF_ERROR(reader.ReadPlane({kOriginal, span.begin, span.end}, i, original));
    RETURN_IF_ERROR(reader.ReadPlane({kCopy, span.begin, span.end}, i, errors));
    for (size_t k = 0; k < errors.size(); ++k) {
      errors[k] -= original[k];
      const double error = std::abs(errors[k]) / judge_.statistics[i].rms;
      sums.error += error;
      sums.max_error = std::max(sums.max_error, error);
    }
    sums.divergence +=
        judge_.sensitivities[i] * WeightedSquares(judge_.weights[i], errors, channels);
  }
  return absl::OkStatus();
}

absl::Status Measurement::Add(const TokenSpan& span) {
  const std::vector<std::string> planes = CutOut(judge_.contexts, span);
  Contexts pair = {.geometry = judge_.contexts.geometry,
                   .plane_names = judge_.contexts.plane_names,
                   .contexts = {AsContext(span, planes), {}}};
  ASSIGN_OR_RETURN(const EncodedChunk encoded,
                   EncodeChunk(profile_, {.start_token = span.begin},
                               pair.contexts[kOriginal].planes, span.size(), {}));
  const auto container = AsBytes(encoded.container);
  ASSIGN_OR_RETURN(const ChunkHeader header, ParseChunkHeader(container));
  for (size_t l = 0; l < levels_.size(); ++l) {
    ASSIGN_OR_RETURN(const auto copy, Decode(profile_, header, container, static_cast<Level>(l)));
    pair.contexts[kCopy] = AsContext(span, copy);
    RETURN_IF_ERROR(Compare(span, pair, levels_[l]));
    levels_[l].bytes += static_cast<double>(encoded.levels[l].bytes);
  }
  const double learnable = span.size() - span.num_sinks(profile_.sink_tokens());
  for (size_t g = 0; g < profile_.groups().size(); ++g) {
    coded_elements_ += learnable * static_cast<double>(profile_.coded_channels(g));
  }
  elements_ += static_cast<double>(pair.geometry.elements_per_token()) * span.size();
  tokens_ += learnable;
  return absl::OkStatus();
}

std::vector<LevelQuality> Measurement::Finish() const {
  std::vector<LevelQuality> result;
  for (const Sums& sums : levels_) {
    result.push_back(
        {.bits_per_element = static_cast<float>(8 * sums.bytes / elements_),
         .mean_error = static_cast<float>(sums.error / std::max(coded_elements_, 1.0)),
         .max_error = static_cast<float>(sums.max_error),
         .predicted_kl = static_cast<float>(sums.divergence / std::max(tokens_, 1.0))});
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<LevelQuality>> MeasureQuality(const Profile& profile,
                                                         const HeldOutJudge& judge,
                                                         const std::function<void(size_t)>& done) {
  Measurement measurement(profile, judge);
  for (size_t i = 0; i < judge.spans.size(); ++i) {
    RETURN_IF_ERROR(measurement.Add(judge.spans[i]));
    done(i + 1);
  }
  return measurement.Finish();
}

}  // namespace sluice::codec
