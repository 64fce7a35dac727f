// The shapes of a model's KV cache: its planes, their element types and rotary embeddings.
//
// Immutable values. A context's planes are listed in the order of model layers, keys before values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace sluice::codec {

enum class ElementType : uint8_t {
  kBf16 = 1,
  kFp16 = 2,
  kFp32 = 3,
  kFp8E4M3 = 4,
  kFp8E5M2 = 5,
  kBytes = 6,
};

// Bytes of one element; 0 for a value that is no ElementType.
size_t ElementBytes(ElementType type);
// True for types that lossy levels can quantise (bf16, fp16, fp32); the others are kept exact.
bool IsQuantisable(ElementType type);

enum class PlaneKind : uint8_t { kKey = 1, kValue = 2, kLatent = 3, kOpaque = 4 };

enum class RotaryLayout : uint8_t {
  kHalf = 1,         // dimension d pairs with d + rotary_dim / 2
  kInterleaved = 2,  // dimension 2 d pairs with 2 d + 1
};

// A rotary embedding: pair p of a token at position n is turned by n * inverse_frequencies[p]
// radians. The rotated dimensions are [first_dim, first_dim + 2 * inverse_frequencies.size()).
struct RotaryTable {
  RotaryLayout layout = RotaryLayout::kHalf;
  uint32_t first_dim = 0;
  std::vector<double> inverse_frequencies;

  bool operator==(const RotaryTable&) const = default;
};

// The usual table: inverse_frequencies[p] = theta ^ (-2 p / rotary_dim)  (RoFormer, section 3.2.2).
RotaryTable MakeRotaryTable(double theta, uint32_t rotary_dim, RotaryLayout layout);

// One plane, shape [num_heads, num_tokens, head_dim].
struct PlaneSpec {
  static constexpr int32_t kNotRotated = -1;

  PlaneKind kind = PlaneKind::kKey;
  ElementType element_type = ElementType::kBf16;
  uint32_t model_layer = 0;
  uint32_t num_heads = 0;
  uint32_t head_dim = 0;               // for opaque planes: bytes per token (with num_heads 1)
  int32_t rotary_table = kNotRotated;  // index into Geometry::rotary_tables; keys and latents only

  size_t channels() const { return size_t{num_heads} * head_dim; }
  size_t bytes_per_token() const { return channels() * ElementBytes(element_type); }
  bool operator==(const PlaneSpec&) const = default;
};

struct Geometry {
  static constexpr size_t kMaxPlanes = 1024;
  static constexpr uint32_t kMaxHeads = 1024;
  static constexpr uint32_t kMaxHeadDim = 1 << 20;  // large only for opaque planes
  static constexpr size_t kMaxChannels = 1 << 20;   // num_heads * head_dim of a plane
  static constexpr size_t kMaxRotaryTables = 256;
  static constexpr size_t kMaxRotaryPairs = 4096;
  static constexpr double kMaxInverseFrequency =
      1e3;  // radians per token; usual tables have 1 at most

  std::vector<PlaneSpec> planes;
  std::vector<RotaryTable> rotary_tables;

  size_t bytes_per_token() const;
  size_t elements_per_token() const;
  // Names the first field that is out of range or inconsistent.
  absl::Status Validate() const;
  bool operator==(const Geometry&) const = default;
};

}  // namespace sluice::codec
