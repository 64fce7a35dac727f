// Encoding of rows, and counting of their symbols, on vectors. For row_kernels.cc, once for every
// set of instructions.
#if defined(SLUICE_CODEC_ROW_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CODEC_ROW_ENCODE_INL_H_
#undef SLUICE_CODEC_ROW_ENCODE_INL_H_
#else
#define SLUICE_CODEC_ROW_ENCODE_INL_H_
#endif

#include <algorithm>

#include "codec/row_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::codec {
namespace HWY_NAMESPACE {

HWY_INLINE U16 BaseSymbols(U16 values) {
  // Below -7 they wrap around, far above the escape.
  return hn::Min(hn::Add(values, Set(kBaseZero)), Set(kEscapeSymbol));
}

// The integer nearest to value / 3.
HWY_INLINE hn::Vec<TagI16> ParentsOf(hn::Vec<TagI16> value) {
  const TagI16 d;
  // 21846 / 65536 is a little above a third: floor(v / 3), or one less, where v is 3p or 3p - 1.
  const auto third = hn::MulHigh(value, hn::Set(d, 21846));
  const auto rest = hn::Sub(value, hn::Mul(third, hn::Set(d, 3)));
  return hn::Sub(third, hn::VecFromMask(d, hn::Gt(rest, hn::Set(d, 1))));
}

// Parents clipped and moved to 0 .. 6, and symbols, r + 1.
struct Refinements {
  U16 context;
  U16 symbol;
};
HWY_INLINE Refinements RefinementsOf(U16 values) {
  const TagI16 d;
  const auto value = hn::BitCast(d, values);
  const auto parent = ParentsOf(value);
  const auto symbol = hn::Sub(hn::Add(value, hn::Set(d, 1)), hn::Mul(parent, hn::Set(d, 3)));
  const auto limit = hn::Set(d, kContextLimit);
  const auto context = hn::Add(hn::Min(hn::Max(parent, hn::Neg(limit)), limit), limit);
  return {hn::BitCast(TagU16(), context), hn::BitCast(TagU16(), symbol)};
}

HWY_INLINE Interval IntervalOf(const BaseLookup& table, U16 values) {
  const U16 symbol = BaseSymbols(values);
  const Mask is_odd = hn::TestBit(symbol, Set(1));
  const U16 even_symbol = hn::And(symbol, Set(kBaseSymbols - 2));
  const U16 index = hn::Add(hn::Or(even_symbol, hn::ShiftLeft<8>(even_symbol)), Set(kIndexOrigin));
  const U16 odd = Lookup(table.odd, index);
  const U16 start = hn::IfThenElse(is_odd, odd, Lookup(table.even, index));
  const U16 end = hn::IfThenElse(is_odd, Lookup(table.end, index), odd);
  return {start, hn::Sub(end, start)};
}

HWY_INLINE Interval IntervalOf(const RefinementLookup& table, U16 values) {
  const Refinements refinements = RefinementsOf(values);
  const U16 index = hn::Add(hn::Mul(refinements.context, Set(kIndexUnit)), Set(kIndexOrigin));
  const U16 one = Lookup(table.one, index);
  const U16 two = Lookup(table.two, index);
  const Mask past_one = AtLeast(refinements.symbol, Set(1));
  const Mask past_two = AtLeast(refinements.symbol, Set(2));
  const U16 start = hn::IfThenElse(past_two, two, hn::IfThenElseZero(past_one, one));
  const U16 end = hn::IfThenElse(past_two, Set(kProbScale), hn::IfThenElse(past_one, two, one));
  return {start, hn::Sub(end, start)};
}

// One step, of the first `count` lanes. The last lanes' words are the first to be put.
template <bool kPartial, typename Lookup>
HWY_INLINE void EncodeStep(const Lookup& table, const uint16_t* values, size_t count,
                           U16 (&lows)[kVectors], U16 (&highs)[kVectors], uint16_t*& front) {
  const TagU16 d;
  HWY_UNROLL(4)
  for (size_t v = kVectors; v-- > 0;) {
    const Interval symbol = IntervalOf(table, hn::LoadU(d, values + v * kPerVector));
    U16 low = lows[v];
    U16 high = highs[v];
    Mask full = AtLeast(hn::ShiftRight<16 - kProbBits>(high), symbol.freq);
    if constexpr (kPartial) {
      const size_t begin = v * kPerVector;
      full = hn::And(full, hn::FirstN(d, count > begin ? count - begin : 0));
    }
    PutWords(full, low, front);
    low = hn::IfThenElse(full, high, low);
    high = hn::IfThenZeroElse(full, high);
    Append(symbol, low, high);
    if constexpr (kPartial) {
      const size_t begin = v * kPerVector;
      const Mask valid = hn::FirstN(d, count > begin ? count - begin : 0);
      low = hn::IfThenElse(valid, low, lows[v]);
      high = hn::IfThenElse(valid, high, highs[v]);
    }
    lows[v] = low;
    highs[v] = high;
  }
}

template <typename Lookup>
HWY_INLINE void EncodeRowSteps(const EncodeRow<Lookup>& row, size_t num_tokens) {
  const TagU16 d;
  const auto* values = reinterpret_cast<const uint16_t*>(row.values);
  RowSink& sink = *row.sink;
  U16 low[kVectors];
  U16 high[kVectors];
  uint16_t* front = sink.front;
  for (size_t v = 0; v < kVectors; ++v) {
    low[v] = hn::Load(d, sink.low.data() + v * kPerVector);
    high[v] = hn::Load(d, sink.high.data() + v * kPerVector);
  }
  size_t t = num_tokens / kLanes * kLanes;
  if (const size_t count = num_tokens - t; count > 0) {
    uint16_t last[kLanes] = {};
    std::copy_n(values + t, count, last);
    EncodeStep<true>(*row.table, last, count, low, high, front);
  }
  for (; t > 0; t -= kLanes) {
    EncodeStep<false>(*row.table, values + t - kLanes, kLanes, low, high, front);
  }
  for (size_t v = 0; v < kVectors; ++v) {
    hn::Store(low[v], d, sink.low.data() + v * kPerVector);
    hn::Store(high[v], d, sink.high.data() + v * kPerVector);
  }
  sink.front = front;
}

void EncodeBase(const EncodeRow<BaseLookup>& row, size_t num_tokens) {
  EncodeRowSteps(row, num_tokens);
}

void EncodeRefinement(const EncodeRow<RefinementLookup>& row, size_t num_tokens) {
  EncodeRowSteps(row, num_tokens);
}

// Counts kSymbols symbols in a row; kSymbolsOf maps vectors of values.
template <size_t kSymbols, U16 (*kSymbolsOf)(U16)>
HWY_INLINE void Count(std::span<const int16_t> row, std::array<uint32_t, kSymbols>& counts) {
  constexpr size_t kPairs = 4;  // pairs of vectors that are mapped at a time
  const TagU16 d;
  const TagU8 d8;
  counts.fill(0);
  const auto* values = reinterpret_cast<const uint16_t*>(row.data());
  size_t t = 0;
  for (; t + 2 * kPairs * kPerVector <= row.size(); t += 2 * kPairs * kPerVector) {
    hn::Vec<TagU8> symbols[kPairs];  // a byte is enough for one
    for (size_t i = 0; i < kPairs; ++i) {
      const uint16_t* pair = values + t + 2 * i * kPerVector;
      const U16 first = kSymbolsOf(hn::LoadU(d, pair));
      const U16 second = kSymbolsOf(hn::LoadU(d, pair + kPerVector));
      symbols[i] = hn::BitCast(d8, hn::Or(first, hn::ShiftLeft<8>(second)));
    }
    for (size_t s = 0; s < kSymbols; ++s) {
      const auto symbol = hn::Set(d8, static_cast<uint8_t>(s));
      size_t count = 0;
      for (size_t i = 0; i < kPairs; ++i) count += hn::CountTrue(d8, hn::Eq(symbols[i], symbol));
      counts[s] += static_cast<uint32_t>(count);
    }
  }
  for (; t < row.size(); t += kPerVector) {
    const size_t left = std::min(row.size() - t, kPerVector);
    alignas(64) uint16_t last[kPerVector] = {};
    std::copy_n(values + t, left, last);
    alignas(64) uint16_t symbols[kPerVector];
    hn::Store(kSymbolsOf(hn::Load(d, last)), d, symbols);
    for (size_t i = 0; i < left; ++i) ++counts[symbols[i]];
  }
}

HWY_INLINE U16 ContextsAndSymbols(U16 values) {
  const Refinements refinements = RefinementsOf(values);
  return hn::Add(hn::Mul(refinements.context, Set(kRefinementSymbols)), refinements.symbol);
}

size_t NextEscape(std::span<const int16_t> values, size_t begin) {
  const TagU16 d;
  const auto* data = reinterpret_cast<const uint16_t*>(values.data());
  for (; begin + kPerVector <= values.size(); begin += kPerVector) {
    const U16 symbols = BaseSymbols(hn::LoadU(d, data + begin));
    const intptr_t first = hn::FindFirstTrue(d, hn::Eq(symbols, Set(kEscapeSymbol)));
    if (first >= 0) return begin + first;
  }
  return PlainRowKernels().find_escape(values, begin);
}

void Parents(std::span<const int16_t> values, int16_t* parents) {
  const TagI16 d;
  size_t i = 0;
  for (; i + kPerVector <= values.size(); i += kPerVector) {
    hn::StoreU(ParentsOf(hn::LoadU(d, values.data() + i)), d, parents + i);
  }
  PlainRowKernels().parents(values.subspan(i), parents + i);
}

// The lanes keep the best of their columns, the first of equal ones.
uint32_t CheapestClass(std::span<const uint32_t> counts, const PriceTable& prices,
                       const float* extra) {
  const hn::CappedTag<float, PriceTable::kColumns> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  auto best = hn::Set(d, PriceTable::kNever);
  auto best_index = hn::Zero(di);
  for (size_t c = 0; c < prices.num_columns(); c += lanes) {
    auto price = hn::LoadU(d, extra + c);
    for (size_t s = 0; s < counts.size(); ++s) {
      const auto count = hn::Set(d, static_cast<float>(counts[s]));
      price = hn::Add(price, hn::Mul(count, hn::LoadU(d, prices.row(s) + c)));
    }
    const auto is_better = hn::Lt(price, best);
    best = hn::IfThenElse(is_better, price, best);
    const auto index = hn::Iota(di, static_cast<int32_t>(c));
    best_index = hn::IfThenElse(hn::RebindMask(di, is_better), index, best_index);
  }
  const auto is_best = hn::RebindMask(di, hn::Eq(best, hn::MinOfLanes(d, best)));
  const auto last = hn::Set(di, static_cast<int32_t>(prices.num_columns()));
  const auto first = hn::MinOfLanes(di, hn::IfThenElse(is_best, best_index, last));
  return static_cast<uint32_t>(hn::GetLane(first));
}

void CountBase(std::span<const int16_t> row, BaseCounts& counts) {
  Count<kBaseSymbols, BaseSymbols>(row, counts);
}

void CountRefinement(std::span<const int16_t> row, RefinementCounts& counts) {
  Count<kContexts * kRefinementSymbols, ContextsAndSymbols>(row, counts);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::codec
HWY_AFTER_NAMESPACE();
#endif
