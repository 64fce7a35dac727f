#include "codec/token_planes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/elements.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/token_planes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sluice::codec::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using SignedTag = hn::RebindToSigned<FloatTag>;
using UnsignedTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<uint16_t, FloatTag>;
using Floats = hn::Vec<FloatTag>;
using Bits = hn::Vec<UnsignedTag>;
using Halves = hn::Vec<HalfTag>;

// Tokens of a head at a time: long enough a run of each block for the prefetchers, and short enough
// that the cosines and sines of the next head are still at hand.
constexpr size_t kTileTokens = 64;

// Where the vectors of `count` elements begin: the last overlaps the one before it, which does no
// harm, for inputs and outputs are apart. None if there are fewer elements than a vector has.
template <typename Visit>
HWY_INLINE bool ForEachVector(size_t count, Visit visit) {
  const size_t lanes = hn::Lanes(FloatTag());
  if (count < lanes) return false;
  for (size_t i = 0; i < count; i += lanes) visit(std::min(i, count - lanes));
  return true;
}

// Fused multiply-adds would round once instead of twice, and only on some machines.
HWY_INLINE Floats MulThenAdd(Floats a, Floats b, Floats c) { return hn::Add(hn::Mul(a, b), c); }

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

template <class E>
using ElementTag = hn::Rebind<typename E::Element, FloatTag>;

// A head's columns of one token, in column blocks.
class Columns {
 public:
  Columns(std::span<const float> x, size_t num_tokens, size_t token, size_t first)
      : blocks_(x.data() + token * kBlockColumns),
        block_stride_(num_tokens * kBlockColumns),
        first_(first) {}

  float operator[](size_t dim) const { return *At(first_ + dim); }

  HWY_INLINE Floats Load(size_t dim) const {
    const FloatTag df;
    HWY_ALIGN float copy[HWY_MAX_BYTES / sizeof(float)];
    return hn::LoadU(df, Find(dim, hn::Lanes(df), copy));
  }

#if HWY_TARGET != HWY_SCALAR
  HWY_INLINE void LoadPairs(size_t dim, Floats& a, Floats& b) const {
    const FloatTag df;
    HWY_ALIGN float copy[2 * HWY_MAX_BYTES / sizeof(float)];
    hn::LoadInterleaved2(df, Find(dim, 2 * hn::Lanes(df), copy), a, b);
  }
#endif

 private:
  const float* At(size_t column) const {
    return blocks_ + column / kBlockColumns * block_stride_ + column % kBlockColumns;
  }
  // `count` columns one after another: in place, or copied if they lie in two blocks.
  HWY_INLINE const float* Find(size_t dim, size_t count, float* copy) const {
    const size_t column = first_ + dim;
    if (HWY_LIKELY(column % kBlockColumns + count <= kBlockColumns)) return At(column);
    for (size_t i = 0; i < count; ++i) copy[i] = *At(column + i);
    return copy;
  }

  const float* const blocks_;
  const size_t block_stride_;
  const size_t first_;
};

// One plane on its way out: what is the same for all tokens.
template <class E>
struct Writer {
  using Element = typename E::Element;

  const float* means;
  float scale;
  float largest;

  HWY_INLINE Floats Value(const Columns& x, size_t dim) const {
    const FloatTag df;
    return MulThenAdd(x.Load(dim), hn::Set(df, scale), hn::LoadU(df, means + dim));
  }
  float OneValue(const Columns& x, size_t dim) const { return x[dim] * scale + means[dim]; }

  HWY_INLINE auto Round(Floats value) const {
    const FloatTag df;
    return E::Round(hn::Min(hn::Max(value, hn::Set(df, -largest)), hn::Set(df, largest)));
  }
  void StoreOne(float value, std::byte* out, size_t dim) const {
    const float above = value > -largest ? value : -largest;
    const Element element = E::RoundOne(above < largest ? above : largest);
    std::memcpy(out + dim * sizeof(Element), &element, sizeof(Element));
  }
  static HWY_INLINE Element* At(std::byte* out, size_t dim) {
    return reinterpret_cast<Element*>(out + dim * sizeof(Element));
  }

  void Plain(const Columns& x, size_t begin, size_t end, std::byte* out) const {
    const auto step = [&](size_t i) HWY_ATTR {
      hn::StoreU(Round(Value(x, begin + i)), ElementTag<E>(), At(out, begin + i));
    };
    if (ForEachVector(end - begin, step)) return;
    for (size_t d = begin; d < end; ++d) StoreOne(OneValue(x, d), out, d);
  }

  void Pair(const Columns& x, size_t first, size_t second, float c, float s, std::byte* out) const {
    const float a = OneValue(x, first);
    const float b = OneValue(x, second);
    StoreOne(a * c - b * s, out, first);
    StoreOne(b * c + a * s, out, second);
  }

  // Pairs (first + p, first + pairs + p).
  void TurnHalves(const Columns& x, size_t first, size_t pairs, const float* cosines,
                  const float* sines, std::byte* out) const {
    const FloatTag df;
    const auto step = [&](size_t p) HWY_ATTR {
      const Floats a = Value(x, first + p);
      const Floats b = Value(x, first + pairs + p);
      const Floats c = hn::LoadU(df, cosines + p);
      const Floats s = hn::LoadU(df, sines + p);
      hn::StoreU(Round(hn::Sub(hn::Mul(a, c), hn::Mul(b, s))), ElementTag<E>(), At(out, first + p));
      hn::StoreU(Round(hn::Add(hn::Mul(b, c), hn::Mul(a, s))), ElementTag<E>(),
                 At(out, first + pairs + p));
    };
    if (ForEachVector(pairs, step)) return;
    for (size_t p = 0; p < pairs; ++p) {
      Pair(x, first + p, first + pairs + p, cosines[p], sines[p], out);
    }
  }

  // Pairs (first + 2 p, first + 2 p + 1).
  void TurnNeighbours(const Columns& x, size_t first, size_t pairs, const float* cosines,
                      const float* sines, std::byte* out) const {
#if HWY_TARGET != HWY_SCALAR
    const FloatTag df;
    const auto step = [&](size_t p) HWY_ATTR {
      const size_t d = first + 2 * p;
      Floats a, b, mean_a, mean_b;
      x.LoadPairs(d, a, b);
      hn::LoadInterleaved2(df, means + d, mean_a, mean_b);
      a = MulThenAdd(a, hn::Set(df, scale), mean_a);
      b = MulThenAdd(b, hn::Set(df, scale), mean_b);
      const Floats c = hn::LoadU(df, cosines + p);
      const Floats s = hn::LoadU(df, sines + p);
      hn::StoreInterleaved2(Round(hn::Sub(hn::Mul(a, c), hn::Mul(b, s))),
                            Round(hn::Add(hn::Mul(b, c), hn::Mul(a, s))), ElementTag<E>(),
                            At(out, d));
    };
    if (ForEachVector(pairs, step)) return;
#endif
    for (size_t p = 0; p < pairs; ++p) {
      Pair(x, first + 2 * p, first + 2 * p + 1, cosines[p], sines[p], out);
    }
  }

  void Token(const Columns& x, size_t head_dim, const TokenRotation* rotation, size_t token,
             std::byte* out) const {
    if (rotation == nullptr) return Plain(x, 0, head_dim, out);
    const size_t first = rotation->first_dim();
    const size_t pairs = rotation->num_pairs();
    const float* const cosines = rotation->cosines(token);
    const float* const sines = rotation->sines(token);
    Plain(x, 0, first, out);
    if (rotation->layout() == RotaryLayout::kHalf) {
      TurnHalves(x, first, pairs, cosines, sines, out);
    } else {
      TurnNeighbours(x, first, pairs, cosines, sines, out);
    }
    Plain(x, first + 2 * pairs, head_dim, out);
  }
};

template <class E>
void WriteTokensAs(const TokenPlane& plane, float ratio, const TokenRotation* rotation,
                   size_t num_tokens, std::span<const float> x, PlaneView<std::byte> out) {
  const float scale = ratio * plane.step;
  const float largest = LargestElement(E::kType);
  for (size_t tile = 0; tile < num_tokens; tile += kTileTokens) {
    const size_t end = std::min(tile + kTileTokens, num_tokens);
    for (size_t head = 0; head < plane.num_heads; ++head) {
      const size_t channel = head * plane.head_dim;
      const Writer<E> writer = {plane.means.data() + channel, scale, largest};
      for (size_t t = tile; t < end; ++t) {
        const Columns columns(x, num_tokens, t, plane.first_column + channel);
        writer.Token(columns, plane.head_dim, rotation, t,
                     out.data + head * out.head_stride + t * out.token_stride);
      }
    }
  }
}

void WriteTokens(const TokenPlane& plane, float ratio, const TokenRotation* rotation,
                 size_t num_tokens, std::span<const float> x, PlaneView<std::byte> out) {
  switch (plane.element_type) {
    case ElementType::kBf16:
      return WriteTokensAs<Bf16Elements>(plane, ratio, rotation, num_tokens, x, out);
    case ElementType::kFp16:
      return WriteTokensAs<Fp16Elements>(plane, ratio, rotation, num_tokens, x, out);
    default:
      return WriteTokensAs<Fp32Elements>(plane, ratio, rotation, num_tokens, x, out);
  }
}

// One plane on its way in.
template <class E>
class Reader {
 public:
  using Element = typename E::Element;

  explicit Reader(float inverse_step) : inverse_step_(inverse_step) {}

  // Bits of the largest |y| so far: NaN and Inf are above all numbers.
  uint32_t largest() const {
    const SignedTag di;
    HWY_ALIGN int32_t lanes[HWY_MAX_BYTES / sizeof(int32_t)];
    hn::Store(largest_, di, lanes);
    return static_cast<uint32_t>(
        std::max(largest_of_tails_, *std::max_element(lanes, lanes + hn::Lanes(di))));
  }

  void Token(const std::byte* in, size_t head_dim, const TokenRotation* rotation, size_t token,
             const float* means, uint16_t* y) {
    if (rotation == nullptr) return Plain(in, 0, head_dim, means, y);
    const size_t first = rotation->first_dim();
    const size_t pairs = rotation->num_pairs();
    const float* const cosines = rotation->cosines(token);
    const float* const sines = rotation->sines(token);
    Plain(in, 0, first, means, y);
    if (rotation->layout() == RotaryLayout::kHalf) {
      TurnHalves(in, first, pairs, cosines, sines, means, y);
    } else {
      TurnNeighbours(in, first, pairs, cosines, sines, means, y);
    }
    Plain(in, first + 2 * pairs, head_dim, means, y);
  }

 private:
  static HWY_INLINE const Element* At(const std::byte* in, size_t dim) {
    return reinterpret_cast<const Element*>(in + dim * sizeof(Element));
  }
  static HWY_INLINE Floats Load(const std::byte* in, size_t dim) {
    return E::Widen(hn::LoadU(ElementTag<E>(), At(in, dim)));
  }
  static float LoadOne(const std::byte* in, size_t dim) {
    Element element;
    std::memcpy(&element, in + dim * sizeof(Element), sizeof(Element));
    return E::WidenOne(element);
  }

  HWY_INLINE Halves Normalised(Floats value, Floats mean) {
    const FloatTag df;
    const Floats y = hn::Mul(hn::Sub(value, mean), hn::Set(df, inverse_step_));
    largest_ = hn::Max(largest_, hn::BitCast(SignedTag(), hn::Abs(y)));
    return Bf16Elements::Round(y);
  }
  uint16_t OneNormalised(float value, float mean) {
    const float y = (value - mean) * inverse_step_;
    largest_of_tails_ = std::max(largest_of_tails_, std::bit_cast<int32_t>(y) & 0x7fffffff);
    return FloatToBf16(y);
  }

  void Plain(const std::byte* in, size_t begin, size_t end, const float* means, uint16_t* y) {
    const auto step = [&](size_t i) HWY_ATTR {
      const size_t d = begin + i;
      hn::StoreU(Normalised(Load(in, d), hn::LoadU(FloatTag(), means + d)), HalfTag(), y + d);
    };
    if (ForEachVector(end - begin, step)) return;
    for (size_t d = begin; d < end; ++d) y[d] = OneNormalised(LoadOne(in, d), means[d]);
  }

  void Pair(const std::byte* in, size_t first, size_t second, float c, float s, const float* means,
            uint16_t* y) {
    const float a = LoadOne(in, first);
    const float b = LoadOne(in, second);
    y[first] = OneNormalised(a * c + b * s, means[first]);
    y[second] = OneNormalised(b * c - a * s, means[second]);
  }

  void TurnHalves(const std::byte* in, size_t first, size_t pairs, const float* cosines,
                  const float* sines, const float* means, uint16_t* y) {
    const FloatTag df;
    const auto step = [&](size_t p) HWY_ATTR {
      const size_t d = first + p;
      const Floats a = Load(in, d);
      const Floats b = Load(in, d + pairs);
      const Floats c = hn::LoadU(df, cosines + p);
      const Floats s = hn::LoadU(df, sines + p);
      hn::StoreU(Normalised(hn::Add(hn::Mul(a, c), hn::Mul(b, s)), hn::LoadU(df, means + d)),
                 HalfTag(), y + d);
      hn::StoreU(
          Normalised(hn::Sub(hn::Mul(b, c), hn::Mul(a, s)), hn::LoadU(df, means + d + pairs)),
          HalfTag(), y + d + pairs);
    };
    if (ForEachVector(pairs, step)) return;
    for (size_t p = 0; p < pairs; ++p) {
      Pair(in, first + p, first + pairs + p, cosines[p], sines[p], means, y);
    }
  }

  void TurnNeighbours(const std::byte* in, size_t first, size_t pairs, const float* cosines,
                      const float* sines, const float* means, uint16_t* y) {
#if HWY_TARGET != HWY_SCALAR
    const FloatTag df;
    const auto step = [&](size_t p) HWY_ATTR {
      const size_t d = first + 2 * p;
      hn::Vec<ElementTag<E>> raw_a, raw_b;
      hn::LoadInterleaved2(ElementTag<E>(), At(in, d), raw_a, raw_b);
      Floats mean_a, mean_b;
      hn::LoadInterleaved2(df, means + d, mean_a, mean_b);
      const Floats a = E::Widen(raw_a);
      const Floats b = E::Widen(raw_b);
      const Floats c = hn::LoadU(df, cosines + p);
      const Floats s = hn::LoadU(df, sines + p);
      hn::StoreInterleaved2(Normalised(hn::Add(hn::Mul(a, c), hn::Mul(b, s)), mean_a),
                            Normalised(hn::Sub(hn::Mul(b, c), hn::Mul(a, s)), mean_b), HalfTag(),
                            y + d);
    };
    if (ForEachVector(pairs, step)) return;
#endif
    for (size_t p = 0; p < pairs; ++p) {
      Pair(in, first + 2 * p, first + 2 * p + 1, cosines[p], sines[p], means, y);
    }
  }

  const float inverse_step_;
  hn::Vec<SignedTag> largest_ = hn::Zero(SignedTag());
  int32_t largest_of_tails_ = 0;
};

// Returns the bits of the largest |y|.
template <class E>
uint32_t ReadTokensAs(const TokenPlane& plane, const TokenRotation* rotation, size_t num_tokens,
                      size_t skip_tokens, PlaneView<const std::byte> in, size_t num_columns,
                      uint16_t* y) {
  Reader<E> reader(1 / plane.step);
  for (size_t tile = skip_tokens; tile < num_tokens; tile += kTileTokens) {
    const size_t end = std::min(tile + kTileTokens, num_tokens);
    for (size_t head = 0; head < plane.num_heads; ++head) {
      const size_t channel = head * plane.head_dim;
      for (size_t t = tile; t < end; ++t) {
        reader.Token(in.data + head * in.head_stride + t * in.token_stride, plane.head_dim,
                     rotation, t, plane.means.data() + channel,
                     y + t * num_columns + plane.first_column + channel);
      }
    }
  }
  return reader.largest();
}

uint32_t ReadTokens(const TokenPlane& plane, const TokenRotation* rotation, size_t num_tokens,
                    size_t skip_tokens, PlaneView<const std::byte> in, size_t num_columns,
                    uint16_t* y) {
  switch (plane.element_type) {
    case ElementType::kBf16:
      return ReadTokensAs<Bf16Elements>(plane, rotation, num_tokens, skip_tokens, in, num_columns,
                                        y);
    case ElementType::kFp16:
      return ReadTokensAs<Fp16Elements>(plane, rotation, num_tokens, skip_tokens, in, num_columns,
                                        y);
    default:
      return ReadTokensAs<Fp32Elements>(plane, rotation, num_tokens, skip_tokens, in, num_columns,
                                        y);
  }
}

}  // namespace
}  // namespace sluice::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::codec {

HWY_EXPORT(WriteTokens);
HWY_EXPORT(ReadTokens);

void WriteTokens(const TokenPlane& plane, float ratio, const TokenRotation* rotation,
                 size_t num_tokens, std::span<const float> x, PlaneView<std::byte> out) {
  HWY_DYNAMIC_DISPATCH(WriteTokens)(plane, ratio, rotation, num_tokens, x, out);
}

ReadReport ReadTokens(const TokenPlane& plane, const TokenRotation* rotation, size_t num_tokens,
                      size_t skip_tokens, PlaneView<const std::byte> in, size_t num_columns,
                      std::span<uint16_t> y) {
  skip_tokens = std::min(skip_tokens, num_tokens);
  for (size_t t = 0; t < skip_tokens; ++t) {
    std::fill_n(y.data() + t * num_columns + plane.first_column, plane.num_heads * plane.head_dim,
                uint16_t{0});
  }
  const uint32_t largest = HWY_DYNAMIC_DISPATCH(ReadTokens)(plane, rotation, num_tokens,
                                                            skip_tokens, in, num_columns, y.data());
  if (largest >= 0x7f800000) return {.finite = false};
  return {.finite = true, .largest = std::bit_cast<float>(largest)};
}

}  // namespace sluice::codec
#endif  // HWY_ONCE
