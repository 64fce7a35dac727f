#include "tests/codec/test_chunks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "codec/bytes.h"
#include "codec/elements.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

// Turns the pairs of one token by the definition, in double.
void RotateToken(const RotaryTable& table, double position, std::span<double> values) {
  const size_t pairs = table.inverse_frequencies.size();
  for (size_t p = 0; p < pairs; ++p) {
    const bool half = table.layout == RotaryLayout::kHalf;
    double& x = values[table.first_dim + (half ? p : 2 * p)];
    double& y = values[table.first_dim + (half ? p + pairs : 2 * p + 1)];
    const double angle = position * table.inverse_frequencies[p];
    const double turned = x * std::cos(angle) - y * std::sin(angle);
    y = y * std::cos(angle) + x * std::sin(angle);
    x = turned;
  }
}

std::string MakePlane(const Geometry& geometry, const PlaneSpec& spec, uint32_t start_token,
                      uint32_t num_tokens, double mean, std::mt19937& random) {
  std::string plane(num_tokens * spec.bytes_per_token(), '\0');
  if (!IsQuantisable(spec.element_type)) {
    for (char& c : plane) c = static_cast<char>(random());
    return plane;
  }
  std::normal_distribution<double> normal;
  std::vector<double> token(spec.head_dim);
  for (size_t head = 0; head < spec.num_heads; ++head) {
    std::vector<double> means(spec.head_dim);
    std::vector<double> sizes(spec.head_dim);
    std::vector<double> walk(spec.head_dim);
    for (size_t d = 0; d < spec.head_dim; ++d) {
      sizes[d] = std::exp(0.7 * normal(random));
      means[d] = mean * normal(random);
    }
    for (size_t t = 0; t < num_tokens; ++t) {
      for (size_t d = 0; d < spec.head_dim; ++d) {
        walk[d] = 0.5 * walk[d] + 0.87 * normal(random);
        token[d] = means[d] + sizes[d] * walk[d];
      }
      if (spec.rotary_table != PlaneSpec::kNotRotated) {
        RotateToken(geometry.rotary_tables[spec.rotary_table], start_token + t, token);
      }
      for (size_t d = 0; d < spec.head_dim; ++d) {
        SetElement(spec, plane, (head * num_tokens + t) * spec.head_dim + d,
                   static_cast<float>(token[d]));
      }
    }
  }
  return plane;
}

}  // namespace

PlaneSpec Plane(PlaneKind kind, uint32_t model_layer, uint32_t heads, uint32_t dim,
                ElementType type, int32_t table) {
  return {.kind = kind,
          .element_type = type,
          .model_layer = model_layer,
          .num_heads = heads,
          .head_dim = dim,
          .rotary_table = table};
}

Geometry KeysAndValues(uint32_t model_layers, uint32_t heads, uint32_t dim, ElementType type,
                       RotaryTable table) {
  Geometry geometry;
  const bool rotated = !table.inverse_frequencies.empty();
  if (rotated) geometry.rotary_tables.push_back(std::move(table));
  for (uint32_t l = 0; l < model_layers; ++l) {
    geometry.planes.push_back(Plane(PlaneKind::kKey, l, heads, dim, type, rotated ? 0 : -1));
    geometry.planes.push_back(Plane(PlaneKind::kValue, l, heads, dim, type));
  }
  return geometry;
}

std::vector<std::span<const std::byte>> TestChunk::spans() const {
  std::vector<std::span<const std::byte>> spans;
  for (const std::string& plane : planes) spans.push_back(AsBytes(plane));
  return spans;
}

EncodedChunk TestChunk::Encode(const EncodeOptions& options) const {
  ChunkIdentity identity;
  identity.start_token = start_token;
  absl::StatusOr<EncodedChunk> encoded =
      EncodeChunk(profile, identity, spans(), num_tokens, options);
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  return encoded.ok() ? *std::move(encoded) : EncodedChunk{};
}

TestChunk MakeChunk(const Geometry& geometry, uint32_t start_token, uint32_t num_tokens,
                    uint32_t seed, double mean) {
  absl::StatusOr<Profile> profile = Profile::Builtin(geometry);
  EXPECT_TRUE(profile.ok()) << profile.status();
  TestChunk chunk{*std::move(profile), start_token, num_tokens, {}};
  std::mt19937 random(seed);
  for (const PlaneSpec& spec : geometry.planes) {
    chunk.planes.push_back(MakePlane(geometry, spec, start_token, num_tokens, mean, random));
  }
  return chunk;
}

double ElementAt(const PlaneSpec& spec, const std::string& plane, size_t k) {
  const size_t size = ElementBytes(spec.element_type);
  float value = 0;
  ElementsToFloat(spec.element_type, AsBytes(plane).subspan(k * size, size), {&value, 1});
  return value;
}

void SetElement(const PlaneSpec& spec, std::string& plane, size_t k, float value) {
  const size_t size = ElementBytes(spec.element_type);
  FloatToElements(spec.element_type, {&value, 1},
                  std::as_writable_bytes(std::span(plane)).subspan(k * size, size));
}

std::vector<std::span<const std::byte>> SegmentsOf(const ChunkHeader& header,
                                                   std::span<const std::byte> container,
                                                   size_t group, Level level) {
  std::vector<std::span<const std::byte>> segments;
  const int last = header.LayerOfLevel(level);
  for (int layer = level == kLossless ? last : 0; layer <= last; ++layer) {
    segments.push_back(container.subspan(header.SegmentOffset(layer, group),
                                         header.layers[layer].segments[group].bytes));
  }
  return segments;
}

absl::StatusOr<std::vector<std::string>> DecodeChunk(const Profile& profile,
                                                     std::span<const std::byte> container,
                                                     Level level) {
  ASSIGN_OR_RETURN(const ChunkHeader header, ParseChunkHeader(container));
  RETURN_IF_ERROR(CheckCompatible(profile, header));
  std::vector<std::string> planes;
  for (const PlaneSpec& spec : profile.geometry().planes) {
    planes.emplace_back(header.num_tokens * spec.bytes_per_token(), '\x5a');
  }
  for (size_t group = 0; group < profile.groups().size(); ++group) {
    const GroupSpec& spec = profile.groups()[group];
    std::vector<std::span<std::byte>> out;
    for (uint32_t i = 0; i < spec.num_planes; ++i) {
      out.push_back(std::as_writable_bytes(std::span(planes[spec.first_plane + i])));
    }
    RETURN_IF_ERROR(DecodeGroup(profile, header, group, level,
                                SegmentsOf(header, container, group, level), out));
  }
  return planes;
}

}  // namespace sluice::codec
