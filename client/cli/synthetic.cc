#include "client/cli/synthetic.h"

#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "codec/elements.h"
#include "codec/geometry.h"

namespace sluice::cli {
namespace {

constexpr double kTheta = 500'000;
constexpr float kMemory = 0.3f;  // share of the previous token's value that is kept
constexpr uint32_t kVocabulary = 32'000;

std::vector<std::byte> MakePlane(const codec::PlaneSpec& spec, uint32_t num_tokens,
                                 std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<std::byte> plane(spec.bytes_per_token() * num_tokens);
  std::vector<float> scale(spec.head_dim), mean(spec.head_dim), value(spec.head_dim);
  std::byte* out = plane.data();
  for (uint32_t head = 0; head < spec.num_heads; ++head) {
    for (uint32_t d = 0; d < spec.head_dim; ++d) {
      scale[d] = std::exp(normal(random) * 0.5f);
      mean[d] = normal(random) * scale[d];
      value[d] = 0;
    }
    for (uint32_t token = 0; token < num_tokens; ++token) {
      for (uint32_t d = 0; d < spec.head_dim; ++d, out += sizeof(uint16_t)) {
        value[d] = kMemory * value[d] + scale[d] * normal(random);
        const uint16_t bits = codec::FloatToBf16(mean[d] + value[d]);
        std::memcpy(out, &bits, sizeof(bits));
      }
    }
  }
  return plane;
}

}  // namespace

SyntheticContext MakeSynthetic(const SyntheticShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  SyntheticContext context;
  client::ContextInput& input = context.input;
  input.num_tokens = shape.num_tokens;
  input.geometry.rotary_tables.push_back(
      codec::MakeRotaryTable(kTheta, shape.head_dim, codec::RotaryLayout::kHalf));
  for (uint32_t layer = 0; layer < shape.model_layers; ++layer) {
    for (auto kind : {codec::PlaneKind::kKey, codec::PlaneKind::kValue}) {
      codec::PlaneSpec spec;
      spec.kind = kind;
      spec.model_layer = layer;
      spec.num_heads = shape.num_heads;
      spec.head_dim = shape.head_dim;
      if (kind == codec::PlaneKind::kKey) spec.rotary_table = 0;
      input.geometry.planes.push_back(spec);
      context.storage.push_back(MakePlane(spec, shape.num_tokens, random));
    }
  }
  for (const auto& plane : context.storage) input.planes.emplace_back(plane);
  for (uint32_t i = 0; i < shape.num_tokens; ++i) {
    input.token_ids.push_back(static_cast<uint32_t>(random() % kVocabulary));
  }
  return context;
}

}  // namespace sluice::cli
