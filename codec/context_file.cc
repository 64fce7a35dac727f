#include "codec/context_file.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "codec/bytes.h"
#include "codec/container.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr std::string_view kMagic = "SLUICECX";
constexpr size_t kPrefixBytes = 16;
constexpr size_t kHeaderBytesOffset = 12;
constexpr size_t kChecksumBytes = sizeof(uint64_t);
constexpr uint32_t kMaxNamespaceBytes = 2048;
constexpr uint32_t kMaxContextHeaderBytes = 1u << 30;

// What the header says about the body.
struct BodySizes {
  uint32_t num_tokens = 0;
  uint64_t tokens_checksum = 0;
  uint64_t profile_bytes = 0;
  uint64_t profile_checksum = 0;
  std::vector<uint64_t> container_bytes;
};

absl::Status Limit(const char* field, uint64_t value, uint64_t limit) {
  if (value <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", more than ", limit));
}

// All chunks but the last are whole, so this many chunks hold more than (num_chunks - 1) *
// chunk_tokens.
absl::Status CheckTokenCount(uint64_t num_tokens, uint64_t num_chunks, uint64_t chunk_tokens) {
  if (num_tokens == 0 || num_chunks == 0) return absl::OkStatus();
  if (num_tokens > (num_chunks - 1) * chunk_tokens) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("num_tokens is ", num_tokens, ", too few for ",
                                          num_chunks, " chunks of ", chunk_tokens));
}

absl::Status ParseMetadata(ByteReader& reader, std::map<std::string, std::string>& metadata) {
  uint32_t count = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("number of metadata entries", 0,
                                               ContextFile::kMaxMetadataEntries, count));
  for (uint32_t i = 0; i < count; ++i) {
    std::string key;
    std::string value;
    RETURN_IF_ERROR(reader.ReadText("metadata key", ContextFile::kMaxMetadataKeyBytes, key));
    RETURN_IF_ERROR(reader.ReadText("metadata value", ContextFile::kMaxMetadataValueBytes, value));
    if (!metadata.empty() && key <= metadata.rbegin()->first) {
      return absl::DataLossError("metadata keys are not in ascending order");
    }
    metadata.emplace_hint(metadata.end(), std::move(key), std::move(value));
  }
  return absl::OkStatus();
}

absl::Status ParseHeader(ByteReader& reader, ContextFile& file, BodySizes& sizes) {
  std::string descriptor;
  RETURN_IF_ERROR(reader.ReadText("namespace", kMaxNamespaceBytes, descriptor));
  ASSIGN_OR_RETURN(file.descriptor, DecodeNamespace(AsBytes(descriptor)));
  RETURN_IF_ERROR(
      reader.ReadInRange<uint32_t>("num_tokens", 0, ContextFile::kMaxTokens, sizes.num_tokens));
  RETURN_IF_ERROR(reader.Read("tokens checksum", sizes.tokens_checksum));
  RETURN_IF_ERROR(reader.Read("profile bytes", sizes.profile_bytes));
  RETURN_IF_ERROR(reader.Read("profile checksum", sizes.profile_checksum));
  RETURN_IF_ERROR(ParseMetadata(reader, file.metadata));
  uint32_t num_chunks = 0;
  RETURN_IF_ERROR(
      reader.ReadInRange<uint32_t>("num_chunks", 0, ContextFile::kMaxChunks, num_chunks));
  for (uint32_t i = 0; i < num_chunks; ++i) {
    uint64_t bytes = 0;
    RETURN_IF_ERROR(reader.Read("container bytes", bytes));
    sizes.container_bytes.push_back(bytes);
  }
  RETURN_IF_ERROR(reader.ExpectEnd("context file header"));
  return CheckTokenCount(sizes.num_tokens, num_chunks, file.descriptor.chunk_tokens);
}

absl::Status CheckPart(const char* field, std::span<const std::byte> bytes, uint64_t checksum) {
  if (Checksum(bytes) == checksum) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(field, " checksum does not match"));
}

absl::Status ParseBody(ByteReader& reader, const BodySizes& sizes, ContextFile& file) {
  std::span<const std::byte> part;
  RETURN_IF_ERROR(reader.ReadBytes("tokens", size_t{sizes.num_tokens} * sizeof(uint32_t), part));
  RETURN_IF_ERROR(CheckPart("tokens", part, sizes.tokens_checksum));
  file.token_ids.resize(sizes.num_tokens);
  if (!part.empty()) std::memcpy(file.token_ids.data(), part.data(), part.size());
  RETURN_IF_ERROR(reader.ReadBytes("profile", sizes.profile_bytes, part));
  RETURN_IF_ERROR(CheckPart("profile", part, sizes.profile_checksum));
  file.profile_bytes = AsText(part);
  for (uint64_t bytes : sizes.container_bytes) {
    RETURN_IF_ERROR(reader.ReadBytes("container", bytes, part));
    file.containers.emplace_back(AsText(part));
  }
  return reader.ExpectEnd("context file");
}

// The prefix, and the header between it and its checksum.
absl::Status FindHeader(std::span<const std::byte> bytes, std::span<const std::byte>& header) {
  ByteReader reader(bytes);
  std::span<const std::byte> magic;
  RETURN_IF_ERROR(reader.ReadBytes("magic", kMagic.size(), magic));
  if (AsText(magic) != kMagic) return absl::DataLossError("magic is not a Sluice context file's");
  uint16_t version = 0;
  RETURN_IF_ERROR(reader.Read("version", version));
  if (version != kContextFileVersion) {
    return absl::UnimplementedError(absl::StrCat("context file version ", version,
                                                 " is not known; this build reads version ",
                                                 kContextFileVersion));
  }
  uint16_t reserved = 0;
  uint32_t header_bytes = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint16_t>("reserved field of the prefix", 0, 0, reserved));
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("header_bytes", kPrefixBytes + kChecksumBytes,
                                               kMaxContextHeaderBytes, header_bytes));
  RETURN_IF_ERROR(reader.ReadBytes("header", header_bytes - kPrefixBytes - kChecksumBytes, header));
  uint64_t checksum = 0;
  RETURN_IF_ERROR(reader.Read("header checksum", checksum));
  return CheckPart("header", bytes.first(header_bytes - kChecksumBytes), checksum);
}

}  // namespace

absl::Status ContextFile::Validate() const {
  RETURN_IF_ERROR(descriptor.Validate());
  RETURN_IF_ERROR(Limit("number of tokens", token_ids.size(), kMaxTokens));
  RETURN_IF_ERROR(Limit("number of chunks", containers.size(), kMaxChunks));
  RETURN_IF_ERROR(Limit("number of metadata entries", metadata.size(), kMaxMetadataEntries));
  uint64_t header_bytes = kPrefixBytes + kMaxNamespaceBytes + 8 * containers.size() + 64;
  for (const auto& [key, value] : metadata) {
    RETURN_IF_ERROR(Limit("length of a metadata key", key.size(), kMaxMetadataKeyBytes));
    RETURN_IF_ERROR(Limit("length of a metadata value", value.size(), kMaxMetadataValueBytes));
    header_bytes += 8 + key.size() + value.size();
  }
  RETURN_IF_ERROR(Limit("header of the context file", header_bytes, kMaxContextHeaderBytes));
  return CheckTokenCount(token_ids.size(), containers.size(), descriptor.chunk_tokens);
}

std::string SerializeContextFile(const ContextFile& file) {
  ByteWriter writer;
  writer.WriteBytes(AsBytes(kMagic));
  writer.Write<uint16_t>(kContextFileVersion);
  writer.Write<uint16_t>(0);
  writer.Write<uint32_t>(0);  // header_bytes, known below
  writer.WriteText(EncodeNamespace(file.descriptor));
  const std::span<const std::byte> tokens = std::as_bytes(std::span(file.token_ids));
  writer.Write<uint32_t>(file.token_ids.size());
  writer.Write<uint64_t>(Checksum(tokens));
  writer.Write<uint64_t>(file.profile_bytes.size());
  writer.Write<uint64_t>(Checksum(AsBytes(file.profile_bytes)));
  writer.Write<uint32_t>(file.metadata.size());
  for (const auto& [key, value] : file.metadata) {
    writer.WriteText(key);
    writer.WriteText(value);
  }
  writer.Write<uint32_t>(file.containers.size());
  for (const std::string& container : file.containers) writer.Write<uint64_t>(container.size());
  writer.Patch<uint32_t>(kHeaderBytesOffset, writer.size() + kChecksumBytes);
  writer.Write<uint64_t>(Checksum(writer.bytes()));

  writer.WriteBytes(tokens);
  writer.WriteBytes(AsBytes(file.profile_bytes));
  for (const std::string& container : file.containers) writer.WriteBytes(AsBytes(container));
  return std::move(writer).Take();
}

absl::StatusOr<ContextFile> ParseContextFile(std::span<const std::byte> bytes) {
  std::span<const std::byte> header;
  RETURN_IF_ERROR(FindHeader(bytes, header));
  ContextFile file;
  BodySizes sizes;
  ByteReader header_reader(header);
  RETURN_IF_ERROR(ParseHeader(header_reader, file, sizes));
  ByteReader body(bytes.subspan(kPrefixBytes + header.size() + kChecksumBytes));
  RETURN_IF_ERROR(ParseBody(body, sizes, file));
  return file;
}

}  // namespace sluice::codec
