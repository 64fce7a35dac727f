#include "codec/encoder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/bytes.h"
#include "codec/chunk_key.h"
#include "codec/exact_planes.h"
#include "codec/group_encoder.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

absl::Status CheckArguments(const Profile& profile, const ChunkIdentity& identity,
                            std::span<const std::span<const std::byte>> planes,
                            uint32_t num_tokens) {
  if (num_tokens < 1 || num_tokens > NamespaceDescriptor::kMaxChunkTokens) {
    return absl::InvalidArgumentError(absl::StrCat("num_tokens is ", num_tokens, ", not in 1..",
                                                   NamespaceDescriptor::kMaxChunkTokens));
  }
  if (identity.start_token > std::numeric_limits<uint32_t>::max() - num_tokens) {
    return absl::InvalidArgumentError("start_token + num_tokens overflows");
  }
  const std::vector<PlaneSpec>& specs = profile.geometry().planes;
  if (planes.size() != specs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", planes.size(), " planes, not ", specs.size()));
  }
  for (size_t i = 0; i < planes.size(); ++i) {
    const size_t expected = num_tokens * specs[i].bytes_per_token();
    if (planes[i].size() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("planes[", i, "] has ", planes[i].size(), " bytes, not ", expected));
    }
  }
  return absl::OkStatus();
}

std::string EncodeLosslessGroup(const SegmentContext& context,
                                std::span<const std::span<const std::byte>> planes) {
  ByteWriter writer;
  for (size_t i = 0; i < planes.size(); ++i) {
    EncodeExactPlane(context.plane(i), context.num_tokens, planes[i], writer);
  }
  return std::move(writer).Take();
}

absl::StatusOr<LayerEntry> MakeLayer(Level level, std::span<const std::string> segments,
                                     const ErrorReport& report) {
  LayerEntry layer;
  layer.level = level;
  layer.mean_error = static_cast<float>(report.mean_relative_error());
  layer.max_error = static_cast<float>(report.max_relative_error());
  for (const std::string& segment : segments) {
    if (segment.size() > kMaxSegmentBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("a segment of level ", LevelName(level),
                                                       " needs ", segment.size(),
                                                       " bytes, but may have ", kMaxSegmentBytes));
    }
    layer.segments.push_back({static_cast<uint32_t>(segment.size()), Checksum(AsBytes(segment))});
  }
  return layer;
}

LevelReport MakeReport(Level level, uint64_t bytes, uint64_t elements, const ErrorReport& report) {
  return {.level = level,
          .bytes = bytes,
          .bits_per_element = 8.0 * static_cast<double>(bytes) / static_cast<double>(elements),
          .max_error = report.max_error(),
          .mean_error = report.mean_error(),
          .error_bound = report.error_bound()};
}

}  // namespace

absl::StatusOr<EncodedChunk> EncodeChunk(const Profile& profile, const ChunkIdentity& identity,
                                         std::span<const std::span<const std::byte>> planes,
                                         uint32_t num_tokens, const EncodeOptions& options) {
  RETURN_IF_ERROR(CheckArguments(profile, identity, planes, num_tokens));
  const size_t num_lossy = options.lossy ? profile.num_levels() : 0;
  const bool lossless = options.lossless || profile.num_levels() == 0;
  if (num_lossy == 0 && !lossless) return absl::InvalidArgumentError("no level is asked for");

  std::vector<std::vector<std::string>> layers(num_lossy + (lossless ? 1 : 0));
  std::vector<ErrorReport> errors(layers.size());
  RotationCache rotations(profile, identity.start_token, num_tokens);
  for (size_t group = 0; group < profile.groups().size(); ++group) {
    const SegmentContext context{&profile, group, identity.start_token, num_tokens};
    const auto group_planes = planes.subspan(context.spec().first_plane, context.spec().num_planes);
    if (num_lossy > 0) {
      std::vector<std::string> segments(num_lossy);
      RETURN_IF_ERROR(EncodeLossyGroup(context, group_planes, rotations, segments,
                                       std::span(errors).first(num_lossy)));
      for (size_t l = 0; l < num_lossy; ++l) layers[l].push_back(std::move(segments[l]));
    }
    if (lossless) layers.back().push_back(EncodeLosslessGroup(context, group_planes));
  }

  ChunkHeader header;
  header.chunk_key = identity.chunk_key;
  header.namespace_digest = identity.namespace_digest;
  header.profile_id = profile.id();
  header.start_token = identity.start_token;
  header.num_tokens = num_tokens;
  for (size_t l = 0; l < layers.size(); ++l) {
    const Level level = l < num_lossy ? static_cast<Level>(l) : kLossless;
    ASSIGN_OR_RETURN(LayerEntry layer, MakeLayer(level, layers[l], errors[l]));
    header.layers.push_back(std::move(layer));
  }

  EncodedChunk chunk;
  chunk.container = SerializeChunkHeader(header);
  const uint64_t header_bytes = chunk.container.size();
  const uint64_t elements = profile.geometry().elements_per_token() * num_tokens;
  uint64_t bytes = header_bytes;
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerEntry& layer = header.layers[l];
    bytes = layer.level == kLossless ? header_bytes + layer.bytes() : bytes + layer.bytes();
    chunk.levels.push_back(MakeReport(layer.level, bytes, elements, errors[l]));
    for (const std::string& segment : layers[l]) chunk.container += segment;
  }
  return chunk;
}

}  // namespace sluice::codec
