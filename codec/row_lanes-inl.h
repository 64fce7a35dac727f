// Steps of rANS on vectors: the 32 lanes' states as halves of 16 bits, in kVectors vectors each.
// For row_kernels.cc, once for every set of instructions.
//
// Halves fit twice the lanes into a vector and need no 32-bit products: with q = state >> 12 in a
// low part of 16 bits and a high one of 4, freq * q is three products of 16 bits.
#if defined(SLUICE_CODEC_ROW_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CODEC_ROW_LANES_INL_H_
#undef SLUICE_CODEC_ROW_LANES_INL_H_
#else
#define SLUICE_CODEC_ROW_LANES_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "codec/row_kernels.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::codec {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using TagU16 = hn::CappedTag<uint16_t, kLanes>;
using TagI16 = hn::RebindToSigned<TagU16>;
using TagU8 = hn::Repartition<uint8_t, TagU16>;
using TagU32 = hn::Repartition<uint32_t, TagU16>;
using TagI32 = hn::RebindToSigned<TagU32>;
using TagF32 = hn::RebindToFloat<TagU32>;
using U16 = hn::Vec<TagU16>;
using Mask = hn::Mask<TagU16>;

inline constexpr size_t kPerVector = hn::MaxLanes(TagU16());
inline constexpr size_t kVectors = kLanes / kPerVector;
static_assert(kPerVector % 8 == 0 && kVectors * kPerVector == kLanes);

HWY_INLINE U16 Set(uint16_t value) { return hn::Set(TagU16(), value); }

// Starts and slots are at most 4096: signed comparisons, which all processors have, will do.
HWY_INLINE Mask AtLeast(U16 a, U16 b) {
#if HWY_TARGET <= HWY_AVX3
  return Mask{_mm512_cmpge_epi16_mask(a.raw, b.raw)};
#else
  const TagI16 d;
  return hn::RebindMask(TagU16(), hn::Not(hn::Lt(hn::BitCast(d, a), hn::BitCast(d, b))));
#endif
}

// a + b where the mask is set, else a.
HWY_INLINE U16 AddWhere(Mask mask, U16 a, U16 b) {
#if HWY_TARGET <= HWY_AVX3
  return U16{_mm512_mask_add_epi16(a.raw, mask.raw, a.raw, b.raw)};
#else
  return hn::Add(a, hn::IfThenElseZero(mask, b));
#endif
}

// An index k into Eight is k * kIndexUnit + kIndexOrigin: the numbers of its two bytes.
inline constexpr uint16_t kIndexUnit = 0x0202;
inline constexpr uint16_t kIndexOrigin = 0x0100;

HWY_INLINE U16 Lookup(const Eight& table, U16 index) {
  const U16 entries = hn::LoadDup128(TagU16(), table.data());
  const TagU8 d;
  return hn::BitCast(TagU16(),
                     hn::TableLookupBytes(hn::BitCast(d, entries), hn::BitCast(d, index)));
}

struct Interval {
  U16 start;
  U16 freq;
};

// For each byte, shuffles of 8 words: `expand` moves the first words to where its bits are set,
// `gather` the words where they are set to the end.
struct WordShuffles {
  constexpr WordShuffles() {
    for (int bits = 0; bits < 256; ++bits) {
      const int count = std::popcount(static_cast<unsigned>(bits));
      int word = 0;
      for (int lane = 0; lane < 8; ++lane) {
        const bool set = (bits >> lane & 1) != 0;
        Put(set ? word : kNothing, lane, expand[bits]);
        if (set) Put(lane, 8 - count + word, gather[bits]);
        word += set;
      }
    }
  }
  static constexpr int kNothing = 0x40;
  static constexpr void Put(int from, int to, uint8_t (&shuffle)[16]) {
    shuffle[2 * to] = static_cast<uint8_t>(2 * from);
    shuffle[2 * to + 1] = static_cast<uint8_t>(2 * from + 1);
  }
  alignas(16) uint8_t expand[256][16] = {};
  alignas(16) uint8_t gather[256][16] = {};
};
inline constexpr WordShuffles kWordShuffles;

// `low` with the next words where `need` is set, in the order of lanes.
HWY_INLINE U16 TakeWords(Mask need, U16 low, const std::byte*& next) {
#if HWY_TARGET <= HWY_AVX3_DL
  const __m512i words = _mm512_loadu_si512(next);
  next += sizeof(uint16_t) * std::popcount(need.raw);
  return U16{_mm512_mask_expand_epi16(low.raw, need.raw, words)};
#elif HWY_TARGET == HWY_AVX3
  const auto first = static_cast<__mmask16>(need.raw);
  const auto second = static_cast<__mmask16>(need.raw >> 16);
  const auto* words = reinterpret_cast<const __m256i*>(next);
  const __m512i first_words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(words));
  next += sizeof(uint16_t) * std::popcount(first);
  words = reinterpret_cast<const __m256i*>(next);
  const __m512i second_words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(words));
  next += sizeof(uint16_t) * std::popcount(second);
  const __m256i lower = _mm512_cvtepi32_epi16(_mm512_maskz_expand_epi32(first, first_words));
  const __m256i upper = _mm512_cvtepi32_epi16(_mm512_maskz_expand_epi32(second, second_words));
  const __m512i expanded = _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
  return U16{_mm512_mask_mov_epi16(low.raw, need.raw, expanded)};
#else
  const hn::Full128<uint8_t> d;
  alignas(8) uint8_t bits[8];
  hn::StoreMaskBits(TagU16(), need, bits);
  const auto take = [&](uint8_t block) HWY_ATTR {
    const auto words = hn::LoadU(d, reinterpret_cast<const uint8_t*>(next));
    next += sizeof(uint16_t) * std::popcount(block);
    return hn::TableLookupBytes(words, hn::Load(d, kWordShuffles.expand[block]));
  };
  const auto first = take(bits[0]);
#if HWY_MAX_BYTES == 32
  const auto taken = hn::Combine(TagU8(), take(bits[1]), first);
#else
  const auto taken = first;
#endif
  return hn::IfThenElse(need, hn::BitCast(TagU16(), taken), low);
#endif
}

// Puts the words where `full` is set before `front`. May write kStepBytes before it.
HWY_INLINE void PutWords(Mask full, U16 words, uint16_t*& front) {
#if HWY_TARGET <= HWY_AVX3
  const TagU16 d;
  const size_t count = hn::CountTrue(d, full);
  front -= count;
  hn::BlendedStore(hn::Compress(words, full), hn::FirstN(d, count), d, front);
#else
  const hn::Full128<uint8_t> d;
  alignas(8) uint8_t bits[8];
  hn::StoreMaskBits(TagU16(), full, bits);
  const auto put = [&](hn::Vec<hn::Full128<uint8_t> > block, uint8_t set) HWY_ATTR {
    const auto gathered = hn::TableLookupBytes(block, hn::Load(d, kWordShuffles.gather[set]));
    hn::StoreU(gathered, d, reinterpret_cast<uint8_t*>(front - 8));
    front -= std::popcount(set);
  };
  const auto bytes = hn::BitCast(TagU8(), words);
#if HWY_MAX_BYTES == 32
  put(hn::UpperHalf(d, bytes), bits[1]);
  put(hn::LowerHalf(d, bytes), bits[0]);
#else
  put(bytes, bits[0]);
#endif
#endif
}

// state >> kProbBits, low 16 bits.
HWY_INLINE U16 QuotientLow(U16 low, U16 high) {
#if HWY_TARGET <= HWY_AVX3_DL
  return U16{_mm512_shldi_epi16(high.raw, low.raw, 16 - kProbBits)};
#else
  return hn::Or(hn::ShiftLeft<16 - kProbBits>(high), hn::ShiftRight<kProbBits>(low));
#endif
}

// The states after a symbol each, before words are taken.
HWY_INLINE void Advance(const Interval& symbol, U16 slot, U16& low, U16& high) {
  const U16 offset = hn::Sub(slot, symbol.start);
  const U16 quotient = QuotientLow(low, high);
  const U16 top = hn::Mul(symbol.freq, hn::ShiftRight<kProbBits>(high));
  low = hn::Add(hn::Mul(symbol.freq, quotient), offset);
  const Mask carry = hn::Lt(low, offset);
  high = AddWhere(carry, hn::Add(hn::MulHigh(symbol.freq, quotient), top), Set(1));
}

HWY_INLINE hn::Vec<TagI32> Truncate(hn::Vec<TagF32> x) {
#if HWY_TARGET <= HWY_AVX3  // Highway mends values that are too large, of which there are none
  return hn::Vec<TagI32>{_mm512_cvttps_epi32(x.raw)};
#else
  return hn::ConvertTo(TagI32(), x);
#endif
}

// floor(state / freq), where that is below 2^20, or one less: its low 16 bits, and what is above
// the low 4.
struct Quotient {
  U16 low;
  U16 above;
};
HWY_INLINE Quotient Divide(U16 low, U16 high, U16 freq) {
  const TagU32 d;
  const TagF32 df;
  const TagI32 di;
  // A little below 1: by this much the quotient outweighs what roundings add, 3 * 2^-24 at most.
  const auto below_one = hn::Set(df, 1 - 0x1p-22f);
  const auto divide = [&](hn::Vec<TagU32> state, hn::Vec<TagU32> by) HWY_ATTR {
    const auto reciprocal = hn::Div(below_one, hn::ConvertTo(df, hn::BitCast(di, by)));
    return hn::BitCast(d, Truncate(hn::Mul(hn::ConvertTo(df, state), reciprocal)));
  };
  const auto halves = hn::Set(d, 0xffff);
  const auto low32 = hn::BitCast(d, low);
  const auto high32 = hn::BitCast(d, high);
  const auto freq32 = hn::BitCast(d, freq);
  const auto even =
      divide(hn::Or(hn::And(low32, halves), hn::ShiftLeft<16>(high32)), hn::And(freq32, halves));
  const auto odd = divide(hn::Or(hn::ShiftRight<16>(low32), hn::AndNot(halves, high32)),
                          hn::ShiftRight<16>(freq32));
  const TagU16 d16;
  const auto join = [&](hn::Vec<TagU32> even, hn::Vec<TagU32> odd_up) HWY_ATTR {
    return hn::OddEven(hn::BitCast(d16, odd_up), hn::BitCast(d16, even));
  };
  return {join(even, hn::ShiftLeft<16>(odd)),
          join(hn::ShiftRight<4>(even), hn::ShiftLeft<12>(odd))};
}

// The states after a symbol each was put into them, where words were given already.
HWY_INLINE void Append(const Interval& symbol, U16& low, U16& high) {
  const Quotient quotient = Divide(low, high, symbol.freq);
  const U16 rest = hn::Sub(low, hn::Mul(quotient.low, symbol.freq));
  const Mask one_less = AtLeast(rest, symbol.freq);
  const U16 added =
      AddWhere(one_less, hn::Add(rest, symbol.start), hn::Sub(Set(kProbScale), symbol.freq));
  low = hn::Add(hn::ShiftLeft<kProbBits>(quotient.low), added);
  high = AddWhere(hn::Lt(low, added), quotient.above, Set(1));
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::codec
HWY_AFTER_NAMESPACE();
#endif
