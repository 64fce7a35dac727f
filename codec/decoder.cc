#include "codec/decoder.h"

#include "absl/strings/str_cat.h"
#include "codec/bytes.h"
#include "codec/exact_planes.h"
#include "codec/group_transform.h"
#include "codec/lossy_segment.h"
#include "codec/reconstruct.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

absl::Status DecodeLossless(const SegmentContext& context, std::span<const std::byte> segment,
                            std::span<const std::span<std::byte>> planes) {
  ByteReader reader(segment);
  for (size_t i = 0; i < planes.size(); ++i) {
    RETURN_IF_ERROR(DecodeExactPlane(absl::StrCat("planes[", i, "]"), context.plane(i),
                                     context.num_tokens, reader, planes[i]));
  }
  return reader.ExpectEnd("lossless segment");
}

// Writes exact planes into `planes`, and the rest into `code`.
absl::Status ReadLossy(const SegmentContext& context,
                       std::span<const std::span<const std::byte>> segments,
                       std::span<const std::span<std::byte>> planes, GroupCode& code) {
  RETURN_IF_ERROR(ReadBaseSegment(context, segments[0], planes, code));
  for (const auto& segment : segments.subspan(1)) {
    RETURN_IF_ERROR(ReadRefinementSegment(context, segment, code));
  }
  return absl::OkStatus();
}

// Everything that can be said of the arguments without decoding.
absl::StatusOr<SegmentContext> Check(const Profile& profile, const ChunkHeader& header,
                                     size_t group, Level level,
                                     std::span<const std::span<const std::byte>> segments) {
  if (group >= profile.groups().size()) {
    return absl::InvalidArgumentError(absl::StrCat("the chunk has no group ", group));
  }
  if (header.LayerOfLevel(level) < 0) {
    return absl::NotFoundError(absl::StrCat("the chunk has no level ", LevelName(level)));
  }
  const size_t needed = level == kLossless ? 1 : size_t{level} + 1;
  if (segments.size() != needed) {
    return absl::InvalidArgumentError(absl::StrCat("level ", LevelName(level), " needs ", needed,
                                                   " segments, not ", segments.size()));
  }
  const size_t first_layer = level == kLossless ? header.LayerOfLevel(level) : 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    RETURN_IF_ERROR(VerifySegment(header, first_layer + i, group, segments[i]));
  }
  return SegmentContext{&profile, group, header.start_token, header.num_tokens};
}

absl::Status CheckPlanes(const SegmentContext& context,
                         std::span<const std::span<std::byte>> planes) {
  if (planes.size() != context.spec().num_planes) {
    return absl::InvalidArgumentError(absl::StrCat("group ", context.group, " has ",
                                                   context.spec().num_planes, " planes, not ",
                                                   planes.size()));
  }
  for (size_t i = 0; i < planes.size(); ++i) {
    const size_t expected = context.num_tokens * context.plane(i).bytes_per_token();
    if (planes[i].size() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("planes[", i, "] has ", planes[i].size(), " bytes, not ", expected));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCompatible(const Profile& profile, const ChunkHeader& header) {
  if (header.profile_id != profile.id()) {
    return absl::FailedPreconditionError(absl::StrCat("profile_id of the chunk is ",
                                                      DigestHex(header.profile_id), ", not ",
                                                      DigestHex(profile.id())));
  }
  if (header.layers.empty() || header.num_groups() != profile.groups().size()) {
    return absl::DataLossError(
        absl::StrCat("number of groups is not the profile's ", profile.groups().size()));
  }
  for (const LayerEntry& layer : header.layers) {
    if (layer.level != kLossless && layer.level >= profile.num_levels()) {
      return absl::DataLossError(absl::StrCat("level is ", +layer.level,
                                              ", but the profile has only ", profile.num_levels(),
                                              " lossy levels"));
    }
  }
  return absl::OkStatus();
}

absl::Status PrepareDecode(const Profile& profile) {
  if (profile.calibration() == nullptr) return absl::OkStatus();
  for (size_t group = 0; group < profile.groups().size(); ++group) {
    if (profile.coded_channels(group) == 0) continue;
    RETURN_IF_ERROR(profile.transforms().Synthesis(profile, group).status());
  }
  return absl::OkStatus();
}

absl::Status GroupDecoder::Read(const Profile& profile, const ChunkHeader& header, size_t group,
                                Level level, std::span<const std::span<const std::byte>> segments) {
  ASSIGN_OR_RETURN(context_, Check(profile, header, group, level, segments));
  level_ = level;
  size_t bytes = 0;
  const size_t num_planes = context_.spec().num_planes;
  for (size_t i = 0; i < num_planes; ++i) {
    bytes += context_.num_tokens * context_.plane(i).bytes_per_token();
  }
  RETURN_IF_ERROR(exact_.Reserve(bytes));
  exact_planes_.clear();
  std::span<std::byte> rest(exact_.data(), bytes);
  for (size_t i = 0; i < num_planes; ++i) {
    const size_t size = context_.num_tokens * context_.plane(i).bytes_per_token();
    exact_planes_.push_back(rest.first(size));
    rest = rest.subspan(size);
  }
  if (level == kLossless) return DecodeLossless(context_, segments[0], exact_planes_);
  return ReadLossy(context_, segments, exact_planes_, code_);
}

absl::Status GroupDecoder::Write(std::span<const PlaneRuns> planes) const {
  if (level_ != kLossless) {
    RotationCache rotations(*context_.profile, context_.start_token, context_.num_tokens);
    RETURN_IF_ERROR(ReconstructGroup(context_, code_, rotations, planes));
  }
  for (size_t i = 0; i < planes.size(); ++i) {
    if (level_ != kLossless && !code_.planes[i].exact) continue;
    CopyToRuns(context_.plane(i), exact_planes_[i], {0, context_.num_tokens}, planes[i]);
  }
  return absl::OkStatus();
}

absl::Status DecodeGroup(const Profile& profile, const ChunkHeader& header, size_t group,
                         Level level, std::span<const std::span<const std::byte>> segments,
                         std::span<const std::span<std::byte>> planes) {
  ASSIGN_OR_RETURN(const SegmentContext context, Check(profile, header, group, level, segments));
  RETURN_IF_ERROR(CheckPlanes(context, planes));
  if (level == kLossless) return DecodeLossless(context, segments[0], planes);
  GroupCode code;
  RETURN_IF_ERROR(ReadLossy(context, segments, planes, code));
  RotationCache rotations(profile, header.start_token, header.num_tokens);
  return ReconstructGroup(context, code, rotations, planes);
}

}  // namespace sluice::codec
