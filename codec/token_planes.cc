#include "codec/token_planes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/elements.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/token_planes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/vector_elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::codec::HWY_NAMESPACE {
namespace {

// Tokens of a head at a time: long enough a run of each block for the prefetchers, and short enough
// that the cosines and sines of the next head are still at hand.
constexpr size_t kTileTokens = 64;

// Calls visit(begin, again) for the vectors of `count` elements: the last overlaps the one before
// it by `again` elements, which does no harm to copies, for inputs and outputs are apart. None, and
// false, if there are fewer elements than a vector has.
template <typename Visit>
HWY_INLINE bool ForEachVector(size_t count, Visit visit) {
  const size_t lanes = hn::Lanes(FloatTag());
  if (count < lanes) return false;
  for (size_t i = 0; i < count; i += lanes) {
    const size_t begin = std::min(i, count - lanes);
    visit(begin, i - begin);
  }
  return true;
}

// Fused multiply-adds would round once instead of twice, and only on some machines.
HWY_INLINE Floats MulThenAdd(Floats a, Floats b, Floats c) { return hn::Add(hn::Mul(a, b), c); }

template <class E>
using ElementTag = hn::Rebind<typename E::Element, FloatTag>;

template <class E>
HWY_INLINE hn::Vec<ElementTag<E>> Round(Floats value, float largest) {
  const FloatTag df;
  return E::Round(hn::Min(hn::Max(value, hn::Set(df, -largest)), hn::Set(df, largest)));
}
template <class E>
typename E::Element RoundOne(float value, float largest) {
  const float above = value > -largest ? value : -largest;
  return E::RoundOne(above < largest ? above : largest);
}

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

// What becomes of a plane's values. Vectors whose first `again` elements were there before count
// once.

template <class E>
class ElementWriter {
 public:
  using View = PlaneView<std::byte>;

  ElementWriter(View view, float largest) : view_(view), largest_(largest) {}

  void Go(size_t head, size_t token) {
    out_ = view_.data + head * view_.head_stride + token * view_.token_stride;
  }
  HWY_INLINE void Put(size_t dim, Floats value, size_t again) {
    hn::StoreU(Round<E>(value, largest_), ElementTag<E>(), At(dim));
  }
#if HWY_TARGET != HWY_SCALAR
  HWY_INLINE void PutPairs(size_t dim, Floats a, Floats b, size_t again) {
    hn::StoreInterleaved2(Round<E>(a, largest_), Round<E>(b, largest_), ElementTag<E>(), At(dim));
  }
#endif
  void PutOne(size_t dim, float value) {
    const auto element = RoundOne<E>(value, largest_);
    std::memcpy(out_ + dim * sizeof(element), &element, sizeof(element));
  }

 private:
  HWY_INLINE typename E::Element* At(size_t dim) const {
    return reinterpret_cast<typename E::Element*>(out_ + dim * sizeof(typename E::Element));
  }

  const View view_;
  const float largest_;
  std::byte* out_ = nullptr;
};

// Differences of what ElementWriter would write to what is there.
template <class E>
class ElementComparer {
 public:
  using View = PlaneView<const std::byte>;

  ElementComparer(View view, float largest) : view_(view), largest_(largest) {}

  void Go(size_t head, size_t token) {
    in_ = view_.data + head * view_.head_stride + token * view_.token_stride;
  }
  HWY_INLINE void Put(size_t dim, Floats value, size_t again) {
    Count(value, E::Widen(hn::LoadU(ElementTag<E>(), At(dim))), again);
  }
#if HWY_TARGET != HWY_SCALAR
  HWY_INLINE void PutPairs(size_t dim, Floats a, Floats b, size_t again) {
    hn::Vec<ElementTag<E>> old_a, old_b;
    hn::LoadInterleaved2(ElementTag<E>(), At(dim), old_a, old_b);
    Count(a, E::Widen(old_a), again);
    Count(b, E::Widen(old_b), again);
  }
#endif
  void PutOne(size_t dim, float value) {
    typename E::Element element;
    std::memcpy(&element, in_ + dim * sizeof(element), sizeof(element));
    const float error = std::abs(E::WidenOne(RoundOne<E>(value, largest_)) - E::WidenOne(element));
    sum_of_tails_ += error;
    largest_of_tails_ = std::max(largest_of_tails_, error);
  }

  // Moves the sums of the vectors, which are exact enough for some thousand elements, to a double.
  void Collect(ErrorSums& sums) {
    const FloatTag df;
    sums.sum += hn::GetLane(hn::SumOfLanes(df, sum_)) + sum_of_tails_;
    sum_ = hn::Zero(df);
    sum_of_tails_ = 0;
    const float largest = hn::GetLane(hn::MaxOfLanes(df, largest_error_));
    sums.largest = std::max({sums.largest, largest, largest_of_tails_});
  }

 private:
  HWY_INLINE const typename E::Element* At(size_t dim) const {
    return reinterpret_cast<const typename E::Element*>(in_ + dim * sizeof(typename E::Element));
  }
  HWY_INLINE void Count(Floats value, Floats old, size_t again) {
    const FloatTag df;
    Floats error = hn::Abs(hn::Sub(E::Widen(Round<E>(value, largest_)), old));
    if (HWY_UNLIKELY(again > 0)) error = hn::IfThenZeroElse(hn::FirstN(df, again), error);
    sum_ = hn::Add(sum_, error);
    largest_error_ = hn::Max(largest_error_, error);
  }

  const View view_;
  const float largest_;
  const std::byte* in_ = nullptr;
  Floats sum_ = hn::Zero(FloatTag());
  Floats largest_error_ = hn::Zero(FloatTag());
  float sum_of_tails_ = 0;
  float largest_of_tails_ = 0;
};

// A head on its way out.
template <class Target>
class HeadWriter {
 public:
  HeadWriter(const float* means, float scale, Target& target)
      : means_(means), scale_(scale), target_(target) {}

  void Token(const Columns& x, size_t head_dim, const TokenRotation* rotation, size_t token) {
    if (rotation == nullptr) return Plain(x, 0, head_dim);
    const size_t first = rotation->first_dim();
    const size_t pairs = rotation->num_pairs();
    const float* const cosines = rotation->cosines(token);
    const float* const sines = rotation->sines(token);
    Plain(x, 0, first);
    if (rotation->layout() == RotaryLayout::kHalf) {
      TurnHalves(x, first, pairs, cosines, sines);
    } else {
      TurnNeighbours(x, first, pairs, cosines, sines);
    }
    Plain(x, first + 2 * pairs, head_dim);
  }

 private:
  HWY_INLINE Floats Value(const Columns& x, size_t dim) const {
    const FloatTag df;
    return MulThenAdd(x.Load(dim), hn::Set(df, scale_), hn::LoadU(df, means_ + dim));
  }
  float OneValue(const Columns& x, size_t dim) const { return x[dim] * scale_ + means_[dim]; }

  void Plain(const Columns& x, size_t begin, size_t end) {
    const auto step = [&](size_t i, size_t again)
                          HWY_ATTR { target_.Put(begin + i, Value(x, begin + i), again); };
    if (ForEachVector(end - begin, step)) return;
    for (size_t d = begin; d < end; ++d) target_.PutOne(d, OneValue(x, d));
  }

  void Pair(const Columns& x, size_t first, size_t second, float c, float s) {
    const float a = OneValue(x, first);
    const float b = OneValue(x, second);
    target_.PutOne(first, a * c - b * s);
    target_.PutOne(second, b * c + a * s);
  }

  // Pairs (first + p, first + pairs + p).
  void TurnHalves(const Columns& x, size_t first, size_t pairs, const float* cosines,
                  const float* sines) {
    const FloatTag df;
    const auto step = [&](size_t p, size_t again) HWY_ATTR {
      const Floats a = Value(x, first + p);
      const Floats b = Value(x, first + pairs + p);
      const Floats c = hn::LoadU(df, cosines + p);
      const Floats s = hn::LoadU(df, sines + p);
      target_.Put(first + p, hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), again);
      target_.Put(first + pairs + p, hn::Add(hn::Mul(b, c), hn::Mul(a, s)), again);
    };
    if (ForEachVector(pairs, step)) return;
    for (size_t p = 0; p < pairs; ++p) {
      Pair(x, first + p, first + pairs + p, cosines[p], sines[p]);
    }
  }

  // Pairs (first + 2 p, first + 2 p + 1).
  void TurnNeighbours(const Columns& x, size_t first, size_t pairs, const float* cosines,
                      const float* sines) {
#if HWY_TARGET != HWY_SCALAR
    const FloatTag df;
    const auto step = [&](size_t p, size_t again) HWY_ATTR {
      const size_t d = first + 2 * p;
      Floats a, b, mean_a, mean_b;
      x.LoadPairs(d, a, b);
      hn::LoadInterleaved2(df, means_ + d, mean_a, mean_b);
      a = MulThenAdd(a, hn::Set(df, scale_), mean_a);
      b = MulThenAdd(b, hn::Set(df, scale_), mean_b);
      const Floats c = hn::LoadU(df, cosines + p);
      const Floats s = hn::LoadU(df, sines + p);
      target_.PutPairs(d, hn::Sub(hn::Mul(a, c), hn::Mul(b, s)),
                       hn::Add(hn::Mul(b, c), hn::Mul(a, s)), again);
    };
    if (ForEachVector(pairs, step)) return;
#endif
    for (size_t p = 0; p < pairs; ++p) {
      Pair(x, first + 2 * p, first + 2 * p + 1, cosines[p], sines[p]);
    }
  }

  const float* const means_;
  const float scale_;
  Target& target_;
};

// Puts the values of `tokens` into `target`; calls after_head(target) now and then.
template <class Target, typename AfterHead>
void ForEachToken(const ColumnTokens& columns, TokenInterval tokens, Target target,
                  AfterHead after_head) {
  const TokenPlane& plane = columns.plane;
  for (size_t tile = tokens.begin; tile < tokens.end; tile += kTileTokens) {
    const size_t end = std::min(tile + kTileTokens, tokens.end);
    for (size_t head = 0; head < plane.num_heads; ++head) {
      const size_t channel = head * plane.head_dim;
      HeadWriter<Target> writer(plane.means.data() + channel, columns.ratio * plane.step, target);
      for (size_t t = tile; t < end; ++t) {
        const Columns x(columns.x, columns.num_tokens, t, plane.first_column + channel);
        target.Go(head, t - tokens.begin);
        writer.Token(x, plane.head_dim, columns.rotation, t);
      }
      after_head(target);
    }
  }
}

template <class E>
void WriteTokensAs(const ColumnTokens& columns, TokenInterval tokens, PlaneView<std::byte> out) {
  using Target = ElementWriter<E>;
  ForEachToken(columns, tokens, Target(out, LargestElement(E::kType)), [](Target&) {});
}

template <class E>
void CompareTokensAs(const ColumnTokens& columns, TokenInterval tokens,
                     PlaneView<const std::byte> original, ErrorSums& sums) {
  using Target = ElementComparer<E>;
  ForEachToken(columns, tokens, Target(original, LargestElement(E::kType)),
               [&](Target& target) { target.Collect(sums); });
}

void WriteTokens(const ColumnTokens& columns, TokenInterval tokens, PlaneView<std::byte> out) {
  switch (columns.plane.element_type) {
    case ElementType::kBf16:
      return WriteTokensAs<Bf16Elements>(columns, tokens, out);
    case ElementType::kFp16:
      return WriteTokensAs<Fp16Elements>(columns, tokens, out);
    default:
      return WriteTokensAs<Fp32Elements>(columns, tokens, out);
  }
}

void CompareTokens(const ColumnTokens& columns, TokenInterval tokens,
                   PlaneView<const std::byte> original, ErrorSums& sums) {
  switch (columns.plane.element_type) {
    case ElementType::kBf16:
      return CompareTokensAs<Bf16Elements>(columns, tokens, original, sums);
    case ElementType::kFp16:
      return CompareTokensAs<Fp16Elements>(columns, tokens, original, sums);
    default:
      return CompareTokensAs<Fp32Elements>(columns, tokens, original, sums);
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
    const auto step = [&](size_t i, size_t) HWY_ATTR {
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
    const auto step = [&](size_t p, size_t) HWY_ATTR {
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
    const auto step = [&](size_t p, size_t) HWY_ATTR {
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
HWY_EXPORT(CompareTokens);
HWY_EXPORT(ReadTokens);

void WriteTokens(const ColumnTokens& columns, TokenInterval tokens, PlaneView<std::byte> out) {
  HWY_DYNAMIC_DISPATCH(WriteTokens)(columns, tokens, out);
}

void CompareTokens(const ColumnTokens& columns, TokenInterval tokens,
                   PlaneView<const std::byte> original, ErrorSums& sums) {
  HWY_DYNAMIC_DISPATCH(CompareTokens)(columns, tokens, original, sums);
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
