#include "codec/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace sluice::codec {
namespace {

constexpr float kLargestBf16 = 0x1.fep127f;
constexpr float kLargestFp16 = 65504;

template <typename Convert>
void HalvesToFloat(const std::byte* bytes, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    out[i] = convert(bits);
  }
}

template <typename Convert>
void FloatToHalves(std::span<const float> values, float largest, std::byte* out, Convert convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = convert(std::clamp(values[i], -largest, largest));
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

}  // namespace

void ElementsToFloat(ElementType type, std::span<const std::byte> bytes, std::span<float> out) {
  switch (type) {
    case ElementType::kBf16:
      return HalvesToFloat(bytes.data(), out, Bf16ToFloat);
    case ElementType::kFp16:
      return HalvesToFloat(bytes.data(), out, Fp16ToFloat);
    default:
      if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size_bytes());
  }
}

void FloatToElements(ElementType type, std::span<const float> values, std::span<std::byte> out) {
  switch (type) {
    case ElementType::kBf16:
      return FloatToHalves(values, kLargestBf16, out.data(), FloatToBf16);
    case ElementType::kFp16:
      return FloatToHalves(values, kLargestFp16, out.data(), FloatToFp16);
    default:
      for (size_t i = 0; i < values.size(); ++i) {
        const float value = std::clamp(values[i], -LargestElement(type), LargestElement(type));
        std::memcpy(out.data() + 4 * i, &value, 4);
      }
  }
}

double RoundingError(ElementType type, double magnitude) {
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
  switch (type) {
    case ElementType::kBf16:
      return std::ldexp(1.0, std::max(exponent, -125) - 9);
    case ElementType::kFp16:
      return std::ldexp(1.0, std::max(exponent, -13) - 12);
    default:
      return std::ldexp(1.0, std::max(exponent, -125) - 25);
  }
}

float LargestElement(ElementType type) {
  switch (type) {
    case ElementType::kBf16:
      return kLargestBf16;
    case ElementType::kFp16:
      return kLargestFp16;
    default:
      return std::numeric_limits<float>::max();
  }
}

}  // namespace sluice::codec
