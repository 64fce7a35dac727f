#include "client/cli/decode_context.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/failure.h"
#include "client/cli/parallel.h"
#include "client/cli/progress.h"
#include "client/file_io.h"
#include "codec/bytes.h"
#include "codec/decoder.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kContextMagic = "SLUICECX";
constexpr std::string_view kProfileMagic = "SLPF";

// Decodes one group of a chunk into its place in the context.
absl::Status DecodeInto(const codec::Profile& profile, const codec::ChunkHeader& header,
                        std::span<const std::byte> container, size_t group, codec::Level level,
                        client::ContextPlanes& out) {
  std::vector<std::span<const std::byte>> segments;
  const size_t last = static_cast<size_t>(header.LayerOfLevel(level));
  for (size_t layer = level == codec::kLossless ? last : 0; layer <= last; ++layer) {
    segments.push_back(container.subspan(header.SegmentOffset(layer, group),
                                         header.layers[layer].segments[group].bytes));
  }
  const codec::GroupSpec& spec = profile.groups()[group];
  std::vector<std::vector<std::byte>> planes;
  std::vector<std::span<std::byte>> views;
  for (uint32_t i = 0; i < spec.num_planes; ++i) {
    const auto& plane = profile.geometry().planes[spec.first_plane + i];
    planes.emplace_back(plane.bytes_per_token() * header.num_tokens);
  }
  for (auto& plane : planes) views.emplace_back(plane);
  RETURN_IF_ERROR(codec::DecodeGroup(profile, header, group, level, segments, views));
  for (uint32_t i = 0; i < spec.num_planes; ++i) {
    RETURN_IF_ERROR(
        out.Write(spec.first_plane + i, header.start_token, header.num_tokens, planes[i]));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsContextFile(const std::string& path) {
  return client::ReadHead(path, kContextMagic.size()) == kContextMagic;
}

bool IsProfile(std::string_view bytes) { return bytes.starts_with(kProfileMagic); }

absl::StatusOr<codec::ContextFile> ReadContextFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, client::ReadFile(path));
  if (!bytes.starts_with(kContextMagic)) {
    return WithHint(absl::InvalidArgumentError(absl::StrCat(path, ": not a .sluice file")),
                    "make one with: sluice encode IN.safetensors OUT.sluice");
  }
  auto file = codec::ParseContextFile(codec::AsBytes(bytes));
  if (file.ok()) return file;
  if (absl::IsUnimplemented(file.status())) {  // another version, not damage
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", file.status().message()));
  }
  return absl::DataLossError(absl::StrCat(path, ": ", file.status().message()));
}

absl::StatusOr<uint32_t> CountTokens(const std::vector<codec::ChunkHeader>& headers) {
  uint64_t tokens = 0;
  for (size_t i = 0; i < headers.size(); ++i) {
    if (headers[i].start_token != tokens) {
      return absl::DataLossError(
          absl::StrCat("chunk ", i, ": start_token is ", headers[i].start_token, ", not ", tokens));
    }
    tokens += headers[i].num_tokens;
  }
  if (tokens > codec::ContextFile::kMaxTokens) {
    return absl::DataLossError(absl::StrCat("chunks have ", tokens, " tokens: over the limit"));
  }
  return static_cast<uint32_t>(tokens);
}

absl::Status CheckChunk(const codec::ContextFile& file, size_t index,
                        const codec::ChunkHeader& header) {
  const codec::Digest digest = codec::NamespaceDigest(file.descriptor);
  const auto bad = [&](absl::string_view field) {
    return absl::DataLossError(absl::StrCat(field, " is not the file's"));
  };
  if (header.namespace_digest != digest) return bad("namespace_digest");
  if (header.profile_id != file.descriptor.profile_id) return bad("profile_id");
  if (header.start_token != index * file.descriptor.chunk_tokens) return bad("start_token");
  if (header.num_tokens > file.descriptor.chunk_tokens) return bad("num_tokens");
  return absl::OkStatus();
}

codec::Level DefaultLevel(const codec::Profile& profile) {
  return profile.num_levels() > 0 ? static_cast<codec::Level>(profile.num_levels() - 1)
                                  : codec::kLossless;
}

absl::StatusOr<client::ContextPlanes> DecodeContext(const codec::ContextFile& file,
                                                    const codec::Profile& profile,
                                                    codec::Level level) {
  std::vector<codec::ChunkHeader> headers;
  for (size_t i = 0; i < file.containers.size(); ++i) {
    const std::string name = absl::StrCat("chunk ", i);
    auto header = codec::VerifyContainer(codec::AsBytes(file.containers[i]));
    if (!header.ok()) return WithPrefix(header.status(), name);
    RETURN_IF_ERROR(WithPrefix(CheckChunk(file, i, *header), name));
    RETURN_IF_ERROR(WithPrefix(codec::CheckCompatible(profile, *header), name));
    if (header->LayerOfLevel(level) < 0) {
      return WithHint(
          absl::NotFoundError(absl::StrCat(name, " does not have level ", codec::LevelName(level))),
          level == codec::kLossless ? "encode it with --lossless"
                                    : "see its levels with: sluice inspect FILE");
    }
    headers.push_back(*std::move(header));
  }
  ASSIGN_OR_RETURN(const uint32_t num_tokens, CountTokens(headers));
  ASSIGN_OR_RETURN(auto planes, client::ContextPlanes::Create(profile.geometry(), num_tokens));
  const size_t groups = profile.groups().size();
  Progress progress("decoding groups", headers.size() * groups);
  RETURN_IF_ERROR(ParallelFor(
      headers.size() * groups,
      [&](size_t i) {
        const size_t chunk = i / groups;
        return WithPrefix(
            DecodeInto(profile, headers[chunk], codec::AsBytes(file.containers[chunk]), i % groups,
                       level, planes),
            absl::StrCat("chunk ", chunk, ", group ", i % groups));
      },
      [&](size_t done) { progress.Update(done); }));
  return planes;
}

}  // namespace sluice::cli
