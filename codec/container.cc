#include "codec/container.h"

#include <xxhash.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "codec/bytes.h"
#include "codec/chunk_key.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr std::string_view kMagic = "SLUICECH";
constexpr size_t kMaxLayers = kMaxLossyLevels + 1;
constexpr size_t kChecksumBytes = 8;

static_assert(ChunkHeader::HeaderBytes(kMaxLayers, Profile::kMaxGroups) <= kMaxHeaderBytes);
static_assert(kMaxSegmentBytes <= std::numeric_limits<uint32_t>::max());
// So sums of segment sizes cannot overflow.
static_assert(kMaxSegmentBytes < (uint64_t{1} << 62) / (kMaxLayers * Profile::kMaxGroups));

absl::Status CheckError(const char* field, float error) {
  if (std::isfinite(error) && error >= 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(field, " is not a finite number of 0 or more"));
}

// "layer 1, group 4"; the lossless layer goes by its level, as it is the only one that is no part
// of others.
std::string SegmentName(const ChunkHeader& header, size_t layer, size_t group) {
  const bool lossless = layer < header.layers.size() && header.layers[layer].level == kLossless;
  return absl::StrCat(lossless ? "level lossless" : absl::StrCat("layer ", layer), ", group ",
                      group);
}

// One row of the layer table.
absl::Status ParseLayer(ByteReader& reader, size_t index, size_t num_groups, LayerEntry& layer) {
  RETURN_IF_ERROR(reader.Read("level", layer.level));
  if (layer.level != kLossless && layer.level != index) {
    return absl::DataLossError(
        absl::StrCat("level of layer ", index, " is ", +layer.level, ", out of order"));
  }
  if (layer.level != kLossless && layer.level >= kMaxLossyLevels) {
    return absl::DataLossError(absl::StrCat("level is ", +layer.level,
                                            ", but the last lossy one is ", kMaxLossyLevels - 1));
  }
  for (int i = 0; i < 3; ++i) {
    uint8_t zero = 0;
    RETURN_IF_ERROR(reader.ReadInRange<uint8_t>("reserved byte of a layer", 0, 0, zero));
  }
  RETURN_IF_ERROR(reader.Read("mean_error", layer.mean_error));
  RETURN_IF_ERROR(reader.Read("max_error", layer.max_error));
  RETURN_IF_ERROR(CheckError("mean_error", layer.mean_error));
  RETURN_IF_ERROR(CheckError("max_error", layer.max_error));
  layer.segments.resize(num_groups);
  for (SegmentEntry& segment : layer.segments) {
    RETURN_IF_ERROR(
        reader.ReadInRange<uint32_t>("segment bytes", 0, kMaxSegmentBytes, segment.bytes));
    RETURN_IF_ERROR(reader.Read("segment checksum", segment.checksum));
  }
  return absl::OkStatus();
}

absl::Status ReadDigest(ByteReader& reader, std::string_view field, Digest& digest) {
  return reader.ReadInto(field, std::as_writable_bytes(std::span(digest)));
}

// The fields between the prefix and the checksum.
absl::Status ParseFields(ByteReader& reader, ChunkHeader& header) {
  RETURN_IF_ERROR(ReadDigest(reader, "chunk_key", header.chunk_key));
  RETURN_IF_ERROR(ReadDigest(reader, "namespace_digest", header.namespace_digest));
  RETURN_IF_ERROR(ReadDigest(reader, "profile_id", header.profile_id));
  RETURN_IF_ERROR(reader.Read("start_token", header.start_token));
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>(
      "num_tokens", 1, NamespaceDescriptor::kMaxChunkTokens, header.num_tokens));
  if (header.start_token > std::numeric_limits<uint32_t>::max() - header.num_tokens) {
    return absl::DataLossError("start_token + num_tokens overflows");
  }
  uint16_t num_layers = 0;
  uint16_t num_groups = 0;
  uint32_t reserved = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint16_t>("num_layers", 1, kMaxLayers, num_layers));
  RETURN_IF_ERROR(reader.ReadInRange<uint16_t>("num_groups", 1, Profile::kMaxGroups, num_groups));
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("reserved field", 0, 0, reserved));
  if (header.header_bytes != ChunkHeader::HeaderBytes(num_layers, num_groups)) {
    return absl::DataLossError(absl::StrCat("header_bytes is ", header.header_bytes, ", but ",
                                            num_layers, " layers of ", num_groups, " groups need ",
                                            ChunkHeader::HeaderBytes(num_layers, num_groups)));
  }
  header.layers.resize(num_layers);
  for (size_t i = 0; i < num_layers; ++i) {
    RETURN_IF_ERROR(ParseLayer(reader, i, num_groups, header.layers[i]));
    if (i > 0 && header.layers[i - 1].level == kLossless) {
      return absl::DataLossError("level lossless is not the last");
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t LayerEntry::bytes() const {
  uint64_t sum = 0;
  for (const SegmentEntry& segment : segments) sum += segment.bytes;
  return sum;
}

uint64_t ChunkHeader::total_bytes() const { return LayerOffset(layers.size()); }

uint64_t ChunkHeader::LayerOffset(size_t layer) const {
  uint64_t offset = header_bytes;
  for (size_t i = 0; i < layer; ++i) offset += layers[i].bytes();
  return offset;
}

uint64_t ChunkHeader::SegmentOffset(size_t layer, size_t group) const {
  uint64_t offset = LayerOffset(layer);
  for (size_t i = 0; i < group; ++i) offset += layers[layer].segments[i].bytes;
  return offset;
}

int ChunkHeader::LayerOfLevel(Level level) const {
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].level == level) return static_cast<int>(i);
  }
  return -1;
}

absl::StatusOr<uint32_t> PeekHeaderBytes(std::span<const std::byte> prefix) {
  ByteReader reader(prefix);
  std::span<const std::byte> magic;
  RETURN_IF_ERROR(reader.ReadBytes("magic", kMagic.size(), magic));
  if (AsText(magic) != kMagic) return absl::DataLossError("magic is not a Sluice chunk's");
  uint16_t version = 0;
  RETURN_IF_ERROR(reader.Read("version", version));
  if (version != kContainerVersion) {
    return absl::UnimplementedError(absl::StrCat("container version ", version,
                                                 " is not known; this build reads version ",
                                                 kContainerVersion));
  }
  uint16_t reserved = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint16_t>("reserved field of the prefix", 0, 0, reserved));
  uint32_t header_bytes = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("header_bytes", ChunkHeader::HeaderBytes(1, 1),
                                               kMaxHeaderBytes, header_bytes));
  return header_bytes;
}

absl::StatusOr<ChunkHeader> ParseChunkHeader(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const uint32_t header_bytes, PeekHeaderBytes(bytes));
  if (bytes.size() < header_bytes) {
    return absl::DataLossError(
        absl::StrCat("header has ", header_bytes, " bytes, but only ", bytes.size(), " are here"));
  }
  const std::span<const std::byte> checked = bytes.first(header_bytes - kChecksumBytes);
  uint64_t checksum = 0;
  ByteReader tail(bytes.subspan(checked.size()));
  RETURN_IF_ERROR(tail.Read("header checksum", checksum));
  if (checksum != Checksum(checked)) return absl::DataLossError("header checksum does not match");

  ChunkHeader header;
  header.header_bytes = header_bytes;
  ByteReader reader(checked.subspan(kHeaderPrefixBytes));
  RETURN_IF_ERROR(ParseFields(reader, header));
  RETURN_IF_ERROR(reader.ExpectEnd("header"));
  return header;
}

std::string SerializeChunkHeader(const ChunkHeader& header) {
  ByteWriter writer;
  writer.WriteBytes(AsBytes(kMagic));
  writer.Write<uint16_t>(kContainerVersion);
  writer.Write<uint16_t>(0);
  writer.Write<uint32_t>(ChunkHeader::HeaderBytes(header.layers.size(), header.num_groups()));
  writer.WriteBytes(AsBytes(DigestBytes(header.chunk_key)));
  writer.WriteBytes(AsBytes(DigestBytes(header.namespace_digest)));
  writer.WriteBytes(AsBytes(DigestBytes(header.profile_id)));
  writer.Write<uint32_t>(header.start_token);
  writer.Write<uint32_t>(header.num_tokens);
  writer.Write<uint16_t>(header.layers.size());
  writer.Write<uint16_t>(header.num_groups());
  writer.Write<uint32_t>(0);
  for (const LayerEntry& layer : header.layers) {
    writer.Write<uint8_t>(layer.level);
    for (int i = 0; i < 3; ++i) writer.Write<uint8_t>(0);
    writer.Write<float>(layer.mean_error);
    writer.Write<float>(layer.max_error);
    for (const SegmentEntry& segment : layer.segments) {
      writer.Write<uint32_t>(segment.bytes);
      writer.Write<uint64_t>(segment.checksum);
    }
  }
  writer.Write<uint64_t>(Checksum(writer.bytes()));
  return std::move(writer).Take();
}

absl::Status VerifySegment(const ChunkHeader& header, size_t layer, size_t group,
                           std::span<const std::byte> segment) {
  if (layer >= header.layers.size() || group >= header.layers[layer].segments.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the chunk has no segment of ", SegmentName(header, layer, group)));
  }
  const SegmentEntry& entry = header.layers[layer].segments[group];
  if (segment.size() != entry.bytes) {
    return absl::DataLossError(absl::StrCat("segment of ", SegmentName(header, layer, group),
                                            " has ", segment.size(), " bytes, not ", entry.bytes));
  }
  if (Checksum(segment) != entry.checksum) {
    return absl::DataLossError(
        absl::StrCat("segment checksum of ", SegmentName(header, layer, group), " does not match"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ChunkHeader> VerifyContainer(std::span<const std::byte> container) {
  ASSIGN_OR_RETURN(ChunkHeader header, ParseChunkHeader(container));
  if (container.size() != header.total_bytes()) {
    return absl::DataLossError(
        absl::StrCat("container has ", container.size(), " bytes, not ", header.total_bytes()));
  }
  size_t offset = header.header_bytes;
  for (size_t layer = 0; layer < header.layers.size(); ++layer) {
    for (size_t group = 0; group < header.num_groups(); ++group) {
      const size_t bytes = header.layers[layer].segments[group].bytes;
      RETURN_IF_ERROR(VerifySegment(header, layer, group, container.subspan(offset, bytes)));
      offset += bytes;
    }
  }
  return header;
}

}  // namespace sluice::codec
