#include "tests/golden/golden_cases.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "codec/bytes.h"

namespace sluice::codec {
namespace {

constexpr size_t kHeaderBytesOffset = 12;

template <typename T>
void Set(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

Digest Filled(uint8_t value) {
  Digest digest;
  digest.fill(value);
  return digest;
}

// A container whose segments hold `segments[layer][group]`.
std::string MakeContainer(ChunkHeader header,
                          const std::vector<std::vector<std::string>>& segments) {
  std::string body;
  for (size_t layer = 0; layer < segments.size(); ++layer) {
    for (const std::string& segment : segments[layer]) {
      header.layers[layer].segments.push_back(
          {static_cast<uint32_t>(segment.size()), Checksum(AsBytes(segment))});
      body += segment;
    }
  }
  return SerializeChunkHeader(header) + body;
}

ChunkHeader ExampleHeader() {
  ChunkHeader header;
  header.chunk_key = Filled(0xc1);
  header.namespace_digest = Filled(0xa2);
  header.profile_id = Filled(0xf3);
  header.start_token = 256;
  header.num_tokens = 16;
  return header;
}

std::string AllLevelsContainer() {
  ChunkHeader header = ExampleHeader();
  std::vector<std::vector<std::string>> segments;
  for (int level = 0; level <= kMaxLossyLevels; ++level) {
    LayerEntry layer;
    layer.level = level < kMaxLossyLevels ? level : kLossless;
    layer.mean_error = level < kMaxLossyLevels ? std::ldexp(1.0f, -level) : 0;
    layer.max_error = 2 * layer.mean_error;
    header.layers.push_back(layer);
    segments.push_back({std::string(level + 1, 'a'), "", std::string(1, '\0')});
  }
  return MakeContainer(header, segments);
}

std::string LosslessOnlyContainer() {
  ChunkHeader header = ExampleHeader();
  header.start_token = std::numeric_limits<uint32_t>::max() - 4096;
  header.num_tokens = 4096;
  header.layers.resize(1);
  header.layers[0].level = kLossless;
  return MakeContainer(header, {{"x"}});
}

// Changes a valid file; the header's checksum is made right again afterwards.
template <typename T>
std::string Changed(std::string bytes, size_t offset, T value) {
  Set(bytes, offset, value);
  SealHeader(bytes);
  return bytes;
}

// The same without the checksum.
template <typename T>
std::string Damaged(std::string bytes, size_t offset, T value) {
  Set(bytes, offset, value);
  return bytes;
}

void AddContainers(std::vector<GoldenCase>& cases) {
  const std::string good = ExampleContainer();
  const auto add = [&](const char* name, std::string bytes, const char* expected) {
    cases.push_back({"container", name, std::move(bytes), expected});
  };
  add("example", good, "");
  add("all_levels", AllLevelsContainer(), "");
  add("lossless_only", LosslessOnlyContainer(), "");

  add("empty", "", "magic");
  add("bad_magic", Damaged(good, 0, 'X'), "magic");
  add("unknown_version", Changed<uint16_t>(good, 8, 2), "container version 2");
  add("prefix_reserved", Changed<uint16_t>(good, 10, 1), "reserved field of the prefix");
  add("header_bytes_small", Damaged<uint32_t>(good, 12, 16), "header_bytes");
  add("header_bytes_large", Damaged<uint32_t>(good, 12, kMaxHeaderBytes + 1), "header_bytes");
  add("header_bytes_wrong", Changed<uint32_t>(good, 12, 204), "header_bytes");
  add("header_truncated", good.substr(0, 100), "header has 208 bytes");
  add("header_checksum", Damaged<uint8_t>(good, 16, 0), "header checksum");
  add("start_token_overflow", Changed<uint32_t>(good, 112, 0xfffffff8), "start_token");
  add("num_tokens_0", Changed<uint32_t>(good, 116, 0), "num_tokens");
  add("num_tokens_large", Changed<uint32_t>(good, 116, 4097), "num_tokens");
  add("num_layers_0", Changed<uint16_t>(good, 120, 0), "num_layers");
  add("num_layers_large", Changed<uint16_t>(good, 120, 10), "num_layers");
  add("num_groups_0", Changed<uint16_t>(good, 122, 0), "num_groups");
  add("num_groups_large", Changed<uint16_t>(good, 122, 513), "num_groups");
  add("header_reserved", Changed<uint32_t>(good, 124, 1), "reserved field");
  add("level_out_of_order", Changed<uint8_t>(good, 128, 1), "level of layer 0");
  add("level_lossless_first", Changed<uint8_t>(good, 128, kLossless), "lossless is not the last");
  add("layer_reserved", Changed<uint8_t>(good, 131, 1), "reserved byte of a layer");
  add("mean_error_nan", Changed(good, 132, std::numeric_limits<float>::quiet_NaN()), "mean_error");
  add("mean_error_negative", Changed(good, 132, -1.0f), "mean_error");
  add("max_error_infinite", Changed(good, 136, std::numeric_limits<float>::infinity()),
      "max_error");
  add("segment_bytes_large", Changed<uint32_t>(good, 140, kMaxSegmentBytes + 1), "segment bytes");
  add("segment_checksum", Changed<uint64_t>(good, 144, 0), "segment checksum of layer 0, group 0");
  add("segment_damaged", Damaged(good, good.size() - 1, '!'),
      "segment checksum of level lossless, group 1");
  add("body_truncated", good.substr(0, good.size() - 1), "container has");
  add("body_too_long", good + '\0', "container has");
}

void AddContextFiles(std::vector<GoldenCase>& cases) {
  const std::string good = SerializeContextFile(ExampleContextFile());
  const auto add = [&](const char* name, std::string bytes, const char* expected) {
    cases.push_back({"context_file", name, std::move(bytes), expected});
  };
  add("example", good, "");
  ContextFile lean = ExampleContextFile();
  lean.profile_bytes.clear();
  add("without_profile", SerializeContextFile(lean), "");
  ContextFile empty;
  empty.descriptor.model = "m";
  add("empty_context", SerializeContextFile(empty), "");

  // Offsets of fields behind the namespace, whose text has this size.
  const size_t tokens = 20 + EncodeNamespace(ExampleContextFile().descriptor).size();
  const size_t metadata = tokens + 28;
  const size_t chunks = metadata + 4 + (4 + 1 + 4 + 2) + (4 + 1 + 4 + 0);
  const size_t body = chunks + 4 + 2 * 8 + 8;
  add("empty", "", "magic");
  add("bad_magic", Damaged(good, 7, 'H'), "magic");
  add("unknown_version", Changed<uint16_t>(good, 8, 9), "context file version 9");
  add("prefix_reserved", Changed<uint16_t>(good, 10, 1), "reserved field of the prefix");
  add("header_bytes_small", Damaged<uint32_t>(good, 12, 23), "header_bytes");
  add("header_bytes_large", Damaged<uint32_t>(good, 12, 0xffffffff), "header_bytes");
  add("header_truncated", good.substr(0, 40), "header");
  add("header_checksum", Damaged<uint8_t>(good, 20, 0), "header checksum");
  add("namespace_long", Changed<uint32_t>(good, 16, 2049), "namespace");
  add("namespace_tag", Changed(good, 20, 'S'), "namespace tag");
  add("namespace_version", Changed<uint32_t>(good, 36, 2), "namespace version 2");
  add("namespace_model_long", Changed<uint32_t>(good, 40, 257), "namespace model");
  add("num_tokens_large", Changed<uint32_t>(good, tokens, (1 << 26) + 1), "num_tokens");
  add("num_tokens_too_few", Changed<uint32_t>(good, tokens, 16), "num_tokens is 16, too few");
  add("tokens_checksum", Changed<uint64_t>(good, tokens + 4, 0), "tokens checksum");
  add("profile_bytes_large", Changed<uint64_t>(good, tokens + 12, ~uint64_t{0}), "profile");
  add("profile_checksum", Changed<uint64_t>(good, tokens + 20, 0), "profile checksum");
  add("metadata_count_large", Changed<uint32_t>(good, metadata, 1025), "metadata entries");
  add("metadata_key_long", Changed<uint32_t>(good, metadata + 4, 257), "metadata key");
  add("metadata_value_long", Changed<uint32_t>(good, metadata + 9, (1 << 20) + 1),
      "metadata value");
  add("metadata_unordered", Changed(good, metadata + 8, 'z'), "metadata keys");
  add("num_chunks_large", Changed<uint32_t>(good, chunks, (1 << 20) + 1), "num_chunks");
  add("container_bytes_large", Changed<uint64_t>(good, chunks + 4, ~uint64_t{0}), "container");
  add("tokens_damaged", Damaged<uint8_t>(good, body, 99), "tokens checksum");
  add("body_truncated", good.substr(0, good.size() - 1), "container");
  add("body_too_long", good + '\0', "context file has 1 bytes too many");
}

}  // namespace

std::string ExampleContainer() {
  ChunkHeader header = ExampleHeader();
  header.layers.resize(2);
  header.layers[0].level = 0;
  header.layers[0].mean_error = 0.125f;
  header.layers[0].max_error = 0.5f;
  header.layers[1].level = kLossless;
  return MakeContainer(header, {{"base 0", "base 1"}, {"exact 0", "exact 1"}});
}

ContextFile ExampleContextFile() {
  ContextFile file;
  file.descriptor = {.model = "example",
                     .revision = "",
                     .adapter = "",
                     .tenant = "t",
                     .salt = "",
                     .chunk_tokens = 16,
                     .profile_id = Filled(0xf3)};
  file.profile_bytes = "a profile";
  for (uint32_t i = 0; i < 32; ++i) file.token_ids.push_back(i);
  file.metadata = {{"a", "bc"}, {"d", ""}};
  file.containers = {ExampleContainer(), LosslessOnlyContainer()};
  return file;
}

void SealHeader(std::string& bytes) {
  uint32_t header_bytes;
  std::memcpy(&header_bytes, bytes.data() + kHeaderBytesOffset, sizeof(header_bytes));
  const size_t end = header_bytes - sizeof(uint64_t);
  Set(bytes, end, Checksum(AsBytes(bytes).first(end)));
}

std::vector<GoldenCase> GoldenCases() {
  std::vector<GoldenCase> cases;
  AddContainers(cases);
  AddContextFiles(cases);
  return cases;
}

}  // namespace sluice::codec
