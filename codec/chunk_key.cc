#include "codec/chunk_key.h"

#include "absl/strings/str_cat.h"
#include "codec/bytes.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

// What is hashed begins with its purpose, so that no namespace can pass for a chunk.
constexpr std::string_view kNamespaceTag = "sluice.namespace";
constexpr std::string_view kChunkKeyTag = "sluice.chunk.key";
constexpr uint32_t kNamespaceVersion = 1;

absl::Status CheckText(const char* field, const std::string& text) {
  if (text.size() <= NamespaceDescriptor::kMaxTextBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("namespace ", field, " has ", text.size(),
                                                 " bytes, more than ",
                                                 NamespaceDescriptor::kMaxTextBytes));
}

}  // namespace

absl::Status NamespaceDescriptor::Validate() const {
  if (model.empty()) return absl::InvalidArgumentError("namespace model is empty");
  RETURN_IF_ERROR(CheckText("model", model));
  RETURN_IF_ERROR(CheckText("revision", revision));
  RETURN_IF_ERROR(CheckText("adapter", adapter));
  RETURN_IF_ERROR(CheckText("tenant", tenant));
  RETURN_IF_ERROR(CheckText("salt", salt));
  if (chunk_tokens < kMinChunkTokens || chunk_tokens > kMaxChunkTokens) {
    return absl::InvalidArgumentError(absl::StrCat("namespace chunk_tokens is ", chunk_tokens,
                                                   ", not in ", kMinChunkTokens, "..",
                                                   kMaxChunkTokens));
  }
  return absl::OkStatus();
}

std::string EncodeNamespace(const NamespaceDescriptor& descriptor) {
  ByteWriter writer;
  writer.WriteBytes(AsBytes(kNamespaceTag));
  writer.Write<uint32_t>(kNamespaceVersion);
  writer.WriteText(descriptor.model);
  writer.WriteText(descriptor.revision);
  writer.WriteText(descriptor.adapter);
  writer.WriteText(descriptor.tenant);
  writer.WriteText(descriptor.salt);
  writer.Write<uint32_t>(descriptor.chunk_tokens);
  writer.WriteBytes(AsBytes(DigestBytes(descriptor.profile_id)));
  return std::move(writer).Take();
}

absl::StatusOr<NamespaceDescriptor> DecodeNamespace(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  std::span<const std::byte> tag;
  RETURN_IF_ERROR(reader.ReadBytes("namespace tag", kNamespaceTag.size(), tag));
  if (AsText(tag) != kNamespaceTag) return absl::DataLossError("namespace tag is wrong");
  uint32_t version = 0;
  RETURN_IF_ERROR(reader.Read("namespace version", version));
  if (version != kNamespaceVersion) {
    return absl::UnimplementedError(absl::StrCat("namespace version ", version, " is not known"));
  }
  NamespaceDescriptor descriptor;
  constexpr uint32_t kMaxBytes = NamespaceDescriptor::kMaxTextBytes;
  RETURN_IF_ERROR(reader.ReadText("namespace model", kMaxBytes, descriptor.model));
  RETURN_IF_ERROR(reader.ReadText("namespace revision", kMaxBytes, descriptor.revision));
  RETURN_IF_ERROR(reader.ReadText("namespace adapter", kMaxBytes, descriptor.adapter));
  RETURN_IF_ERROR(reader.ReadText("namespace tenant", kMaxBytes, descriptor.tenant));
  RETURN_IF_ERROR(reader.ReadText("namespace salt", kMaxBytes, descriptor.salt));
  RETURN_IF_ERROR(reader.Read("namespace chunk_tokens", descriptor.chunk_tokens));
  RETURN_IF_ERROR(reader.ReadInto("namespace profile_id",
                                  std::as_writable_bytes(std::span(descriptor.profile_id))));
  RETURN_IF_ERROR(reader.ExpectEnd("namespace"));
  RETURN_IF_ERROR(descriptor.Validate());
  return descriptor;
}

Digest NamespaceDigest(const NamespaceDescriptor& descriptor) {
  return Sha256(AsBytes(EncodeNamespace(descriptor)));
}

std::vector<Digest> ChunkKeys(const Digest& namespace_digest, std::span<const uint32_t> token_ids,
                              uint32_t chunk_tokens) {
  std::vector<Digest> keys;
  if (chunk_tokens == 0) return keys;
  keys.reserve(token_ids.size() / chunk_tokens);
  Digest previous = namespace_digest;
  for (; token_ids.size() >= chunk_tokens; token_ids = token_ids.subspan(chunk_tokens)) {
    ByteWriter writer;
    writer.WriteBytes(AsBytes(kChunkKeyTag));
    writer.WriteBytes(AsBytes(DigestBytes(previous)));
    writer.WriteBytes(std::as_bytes(token_ids.first(chunk_tokens)));
    previous = Sha256(writer.bytes());
    keys.push_back(previous);
  }
  return keys;
}

}  // namespace sluice::codec
