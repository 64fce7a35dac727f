// Elements of quantisable planes (bf16, fp16, fp32) to and from float.
//
// Pure functions, thread-safe. Loops are free of branches, so that the compiler can vectorise them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/geometry.h"

namespace sluice::codec {

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Nearest, ties to even. Values past the largest finite number become Inf; NaN stays NaN.
inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint32_t quiet_nan = bits >> 16 | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

inline float Fp16ToFloat(uint16_t bits) {
  // The exponent's bias is corrected by a multiplication, which makes subnormals right as well.
  const uint32_t magnitude = uint32_t{bits & 0x7fffu} << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t special = magnitude >= 0x0f800000 ? 0x7f800000 : 0;  // Inf and NaN
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special |
                              uint32_t{bits & 0x8000u} << 16);
}

// Nearest, ties to even; 65520 and above become Inf; NaN stays NaN.
inline uint16_t FloatToFp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t sign = bits >> 16 & 0x8000;
  // Below 2^-14 the float adder does the rounding: the sum's last bit is worth 2^-24.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;
  half = magnitude > 0x7f800000 ? 0x7e00 : half;
  return static_cast<uint16_t>(half | sign);
}

// Converts out.size() elements from `bytes`. REQUIRES: IsQuantisable(type), and bytes.size() is
// out.size() * ElementBytes(type). Any alignment.
void ElementsToFloat(ElementType type, std::span<const std::byte> bytes, std::span<float> out);

// The reverse, to the nearest element. Values beyond a type's range become its largest finite one.
void FloatToElements(ElementType type, std::span<const float> values, std::span<std::byte> out);

// Half the distance between neighbouring elements of size `magnitude`: what rounding to the type
// can change.
double RoundingError(ElementType type, double magnitude);

// The largest finite element.
float LargestElement(ElementType type);

}  // namespace sluice::codec
