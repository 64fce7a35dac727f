// Element types on vectors of floats. For token_planes.cc, once for every set of instructions.
#if defined(SLUICE_CODEC_VECTOR_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CODEC_VECTOR_ELEMENTS_INL_H_
#undef SLUICE_CODEC_VECTOR_ELEMENTS_INL_H_
#else
#define SLUICE_CODEC_VECTOR_ELEMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include "codec/elements.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::codec::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using SignedTag = hn::RebindToSigned<FloatTag>;
using UnsignedTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<uint16_t, FloatTag>;
using Floats = hn::Vec<FloatTag>;
using Bits = hn::Vec<UnsignedTag>;
using Halves = hn::Vec<HalfTag>;

HWY_INLINE Halves ToHalves(Bits bits) {
  return hn::DemoteTo(HalfTag(), hn::BitCast(SignedTag(), bits));
}

HWY_INLINE Bits FromHalves(Halves halves) { return hn::PromoteTo(UnsignedTag(), halves); }

// The conversions of codec/elements.h on vectors, but for NaN.
struct Bf16Elements {
  using Element = uint16_t;
  static constexpr ElementType kType = ElementType::kBf16;

  static HWY_INLINE Halves Round(Floats value) {
    const UnsignedTag du;
    const Bits bits = hn::BitCast(du, value);
    const Bits odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    return ToHalves(hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd)));
  }
  static HWY_INLINE Floats Widen(Halves halves) {
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(FromHalves(halves)));
  }
  static uint16_t RoundOne(float value) { return FloatToBf16(value); }
  static float WidenOne(uint16_t bits) { return Bf16ToFloat(bits); }
};

struct Fp16Elements {
  using Element = uint16_t;
  static constexpr ElementType kType = ElementType::kFp16;

  // REQUIRES: |value| <= 65504.
  static HWY_INLINE Halves Round(Floats value) {
    const FloatTag df;
    const UnsignedTag du;
    const Floats absolute = hn::Abs(value);
    const Bits magnitude = hn::BitCast(du, absolute);
    const Bits sign = hn::And(hn::ShiftRight<16>(hn::BitCast(du, value)), hn::Set(du, 0x8000));
    const Bits subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(absolute, hn::Set(df, 0.5f))), hn::Set(du, 0x3f000000));
    const Bits odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const Bits rebiased = hn::Sub(magnitude, hn::Set(du, 0x38000000 - 0xfff));
    const Bits normal = hn::ShiftRight<13>(hn::Add(rebiased, odd));
    const auto is_small = hn::RebindMask(du, hn::Lt(absolute, hn::Set(df, 0x1p-14f)));
    return ToHalves(hn::Or(hn::IfThenElse(is_small, subnormal, normal), sign));
  }
  static HWY_INLINE Floats Widen(Halves halves) {
    const FloatTag df;
    const UnsignedTag du;
    const SignedTag di;
    const Bits bits = FromHalves(halves);
    const Bits magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fff)));
    const Bits sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
    const Floats scaled = hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112f));
    const auto is_special =
        hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x0f7fffff)));
    const Bits special = hn::IfThenElseZero(is_special, hn::Set(du, 0x7f800000));
    return hn::BitCast(df, hn::Or(hn::Or(hn::BitCast(du, scaled), special), sign));
  }
  static uint16_t RoundOne(float value) { return FloatToFp16(value); }
  static float WidenOne(uint16_t bits) { return Fp16ToFloat(bits); }
};

struct Fp32Elements {
  using Element = float;
  static constexpr ElementType kType = ElementType::kFp32;

  static HWY_INLINE Floats Round(Floats value) { return value; }
  static HWY_INLINE Floats Widen(Floats value) { return value; }
  static float RoundOne(float value) { return value; }
  static float WidenOne(float value) { return value; }
};

}  // namespace sluice::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
