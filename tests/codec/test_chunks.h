// Synthetic chunks for the codec's tests: planes that look like a model's, and short ways to encode
// and decode them.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/decoder.h"
#include "codec/encoder.h"

namespace sluice::codec {

PlaneSpec Plane(PlaneKind kind, uint32_t model_layer, uint32_t heads, uint32_t dim,
                ElementType type = ElementType::kBf16, int32_t table = PlaneSpec::kNotRotated);
// `model_layers` times a key and a value plane; keys turned by the table unless it has no pairs.
Geometry KeysAndValues(uint32_t model_layers, uint32_t heads, uint32_t dim,
                       ElementType type = ElementType::kBf16, RotaryTable table = {});

struct TestChunk {
  Profile profile;
  uint32_t start_token = 0;
  uint32_t num_tokens = 0;
  std::vector<std::string> planes;

  std::vector<std::span<const std::byte>> spans() const;
  EncodedChunk Encode(const EncodeOptions& options = {}) const;  // fails the test on error
};

// Every channel wanders about a mean of its own, of `mean` standard deviations; keys are rotated.
// Planes of other types than bf16, fp16 and fp32 are random bytes.
TestChunk MakeChunk(const Geometry& geometry, uint32_t start_token, uint32_t num_tokens,
                    uint32_t seed, double mean = 1);

// Element k of a plane.
double ElementAt(const PlaneSpec& spec, const std::string& plane, size_t k);
void SetElement(const PlaneSpec& spec, std::string& plane, size_t k, float value);

// The segments that `level` of `group` needs.
std::vector<std::span<const std::byte>> SegmentsOf(const ChunkHeader& header,
                                                   std::span<const std::byte> container,
                                                   size_t group, Level level);
// All planes at a level.
absl::StatusOr<std::vector<std::string>> DecodeChunk(const Profile& profile,
                                                     std::span<const std::byte> container,
                                                     Level level);

}  // namespace sluice::codec
