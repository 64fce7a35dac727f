#include "client/cli/inspect_report.h"

#include "absl/strings/str_cat.h"
#include "client/cli/decode_context.h"
#include "client/cli/profiles.h"
#include "client/cli/units.h"
#include "codec/bytes.h"
#include "codec/context_file.h"
#include "codec/decoder.h"
#include "codec/profile.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kContextMagic = "SLUICECX";
constexpr std::string_view kChunkMagic = "SLUICECH";

void AddProfile(const codec::Profile& profile, InspectReport& report) {
  const codec::Geometry& geometry = profile.geometry();
  const std::string id = codec::DigestHex(profile.id());
  report.facts.emplace_back("profile", id);
  report.facts.emplace_back("",
                            absl::StrCat(FormatCount(geometry.planes.size(), "plane"), ", ",
                                         FormatCount(profile.groups().size(), "group"), ", ",
                                         FormatCount(profile.num_levels(), "lossy level"), ", ",
                                         FormatCount(profile.sink_tokens(), "exact first token")));
  report.facts.emplace_back(
      "", absl::StrCat(FormatBytes(geometry.bytes_per_token()), " a token, ",
                       FormatCount(geometry.rotary_tables.size(), "rotary embedding")));
  report.details["profile"] = {{"id", id},
                               {"planes", geometry.planes.size()},
                               {"groups", profile.groups().size()},
                               {"lossy_levels", profile.num_levels()},
                               {"sink_tokens", profile.sink_tokens()},
                               {"bytes_per_token", geometry.bytes_per_token()},
                               {"elements_per_token", geometry.elements_per_token()}};
}

void AddNamespace(const codec::NamespaceDescriptor& descriptor, InspectReport& report) {
  const std::string digest = codec::DigestHex(codec::NamespaceDigest(descriptor));
  report.facts.emplace_back("namespace", digest);
  Json& json = report.details["namespace"];
  json["digest"] = digest;
  const std::pair<const char*, const std::string*> parts[] = {{"model", &descriptor.model},
                                                              {"revision", &descriptor.revision},
                                                              {"adapter", &descriptor.adapter},
                                                              {"tenant", &descriptor.tenant},
                                                              {"salt", &descriptor.salt}};
  for (const auto& [name, value] : parts) {
    if (!value->empty()) report.facts.emplace_back(name, *value);
    json[name] = *value;
  }
  json["chunk_tokens"] = descriptor.chunk_tokens;
}

InspectedChunk InspectChunk(size_t index, std::string_view container) {
  InspectedChunk chunk;
  chunk.index = index;
  chunk.bytes = container.size();
  auto header = codec::ParseChunkHeader(codec::AsBytes(container));
  if (!header.ok()) {
    chunk.fault = std::string(header.status().message());
    return chunk;
  }
  chunk.header = *std::move(header);
  chunk.start_token = chunk.header.start_token;
  chunk.num_tokens = chunk.header.num_tokens;
  chunk.num_groups = chunk.header.num_groups();
  uint64_t prefix_bytes = chunk.header.header_bytes;
  for (const codec::LayerEntry& layer : chunk.header.layers) {
    if (layer.level == codec::kLossless) {
      chunk.level_bytes[layer.level] = chunk.header.header_bytes + layer.bytes();
    } else {
      chunk.level_bytes[layer.level] = prefix_bytes += layer.bytes();
    }
  }
  const auto verified = codec::VerifyContainer(codec::AsBytes(container));
  if (!verified.ok()) chunk.fault = std::string(verified.status().message());
  return chunk;
}

void AddChunk(InspectedChunk chunk, InspectReport& report) {
  if (!chunk.fault.empty()) {
    report.faults.push_back(absl::StrCat("chunk ", chunk.index, ": ", chunk.fault));
  } else {
    report.elements += chunk.elements;
    for (const auto& [level, bytes] : chunk.level_bytes) report.level_bytes[level] += bytes;
  }
  report.chunks.push_back(std::move(chunk));
}

absl::Status InspectContext(const std::string& bytes, InspectReport& report) {
  auto file = codec::ParseContextFile(codec::AsBytes(bytes));
  if (!file.ok()) {
    if (absl::IsUnimplemented(file.status())) {  // another version, not damage
      return absl::InvalidArgumentError(file.status().message());
    }
    return absl::DataLossError(file.status().message());
  }
  report.kind = "context";
  AddNamespace(file->descriptor, report);
  const auto found = ProfileOf(*file, "");
  if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
  const codec::Profile* profile = found.ok() ? found->get() : nullptr;
  if (profile != nullptr) {
    AddProfile(*profile, report);
  } else {
    const std::string id = codec::DigestHex(file->descriptor.profile_id);
    report.facts.emplace_back("profile", id);
    report.facts.emplace_back("", "neither in the file nor on this host");
    report.details["profile"] = {{"id", id}};
  }
  const auto keys = codec::ChunkKeys(codec::NamespaceDigest(file->descriptor), file->token_ids,
                                     file->descriptor.chunk_tokens);
  uint64_t tokens = 0;
  for (size_t i = 0; i < file->containers.size(); ++i) {
    InspectedChunk chunk = InspectChunk(i, file->containers[i]);
    absl::Status status;
    if (chunk.fault.empty()) status = CheckChunk(*file, i, chunk.header);
    if (chunk.fault.empty() && status.ok() && profile != nullptr) {
      status = codec::CheckCompatible(*profile, chunk.header);
    }
    if (!status.ok()) chunk.fault = std::string(status.message());
    if (chunk.fault.empty() && i < keys.size() && keys[i] != chunk.header.chunk_key) {
      chunk.fault = "chunk_key is not that of the token ids";
    }
    if (profile != nullptr) {
      chunk.elements = chunk.num_tokens * profile->geometry().elements_per_token();
    }
    if (profile != nullptr && chunk.fault.empty()) {
      const auto rate = codec::RateOf(*profile, chunk.header);
      chunk.unusual_rate = rate && rate->unusual;
      report.rates.Add(*profile, chunk.header);
    }
    tokens += chunk.num_tokens;
    AddChunk(std::move(chunk), report);
  }
  report.facts.emplace_back(
      "chunks", absl::StrCat(file->containers.size(), " of ", file->descriptor.chunk_tokens,
                             " tokens; ", tokens, " tokens"));
  if (!report.rates.empty()) report.facts.emplace_back("rate", report.rates.Text());
  report.details["rate"] = report.rates.ToJson();
  report.details["tokens"] = tokens;
  report.details["token_ids"] = !file->token_ids.empty();
  Json& metadata = report.details["metadata"] = Json::object();
  for (const auto& [key, value] : file->metadata) metadata[key] = value;
  return absl::OkStatus();
}

void InspectOneChunk(const std::string& bytes, InspectReport& report) {
  report.kind = "chunk";
  InspectedChunk chunk = InspectChunk(0, bytes);
  const std::pair<const char*, const codec::Digest*> digests[] = {
      {"key", &chunk.header.chunk_key},
      {"namespace", &chunk.header.namespace_digest},
      {"profile", &chunk.header.profile_id}};
  for (const auto& [name, digest] : digests) {
    report.facts.emplace_back(name, codec::DigestHex(*digest));
    report.details[name] = codec::DigestHex(*digest);
  }
  AddChunk(std::move(chunk), report);
}

Json ToJson(const LevelBytes& levels) {
  auto json = Json::object();
  for (const auto& [level, bytes] : levels) json[codec::LevelName(level)] = bytes;
  return json;
}

Json BitsToJson(const LevelBytes& levels, uint64_t elements) {
  auto json = Json::object();
  for (const auto& [level, bytes] : levels) {
    if (elements > 0) json[codec::LevelName(level)] = 8.0 * bytes / elements;
  }
  return json;
}

Json ToJson(const InspectedChunk& chunk) {
  Json json = {{"index", chunk.index},
               {"key", codec::DigestHex(chunk.header.chunk_key)},
               {"start_token", chunk.start_token},
               {"num_tokens", chunk.num_tokens},
               {"groups", chunk.num_groups},
               {"bytes", chunk.bytes},
               {"intact", chunk.fault.empty()},
               {"unusual_rate", chunk.unusual_rate},
               {"level_bytes", ToJson(chunk.level_bytes)},
               {"level_bits", BitsToJson(chunk.level_bytes, chunk.elements)}};
  if (!chunk.fault.empty()) json["fault"] = chunk.fault;
  auto layers = Json::array();
  for (const codec::LayerEntry& layer : chunk.header.layers) {
    auto group_bytes = Json::array();
    for (const codec::SegmentEntry& segment : layer.segments) group_bytes.push_back(segment.bytes);
    layers.push_back({{"level", codec::LevelName(layer.level)},
                      {"bytes", layer.bytes()},
                      {"mean_error", layer.mean_error},
                      {"max_error", layer.max_error},
                      {"group_bytes", group_bytes}});
  }
  json["layers"] = layers;
  return json;
}

}  // namespace

absl::StatusOr<InspectReport> InspectBytes(const std::string& bytes) {
  InspectReport report;
  report.file_bytes = bytes.size();
  if (bytes.starts_with(kContextMagic)) {
    RETURN_IF_ERROR(InspectContext(bytes, report));
  } else if (bytes.starts_with(kChunkMagic)) {
    InspectOneChunk(bytes, report);
  } else {
    if (!IsProfile(bytes)) {
      return absl::InvalidArgumentError("not a .sluice file, a chunk or a profile");
    }
    auto profile = codec::Profile::Parse(codec::AsBytes(bytes));
    if (absl::IsUnimplemented(profile.status())) {
      return absl::InvalidArgumentError(profile.status().message());
    }
    RETURN_IF_ERROR(profile.status());
    report.kind = "profile";
    AddProfile(*profile, report);
  }
  return report;
}

Json ToJson(const InspectReport& report) {
  Json json = {{"file", report.path}, {"kind", report.kind}, {"file_bytes", report.file_bytes}};
  if (report.details.is_object()) json.update(report.details);
  json["intact"] = report.faults.empty();
  json["elements"] = report.elements;
  json["level_bytes"] = ToJson(report.level_bytes);
  json["level_bits"] = BitsToJson(report.level_bytes, report.elements);
  auto& chunks = json["chunks"] = Json::array();
  for (const InspectedChunk& chunk : report.chunks) chunks.push_back(ToJson(chunk));
  return json;
}

}  // namespace sluice::cli
