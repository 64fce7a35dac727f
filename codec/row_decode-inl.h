// Decoding of rows on vectors. For row_kernels.cc, once for every set of instructions.
#if defined(SLUICE_CODEC_ROW_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CODEC_ROW_DECODE_INL_H_
#undef SLUICE_CODEC_ROW_DECODE_INL_H_
#else
#define SLUICE_CODEC_ROW_DECODE_INL_H_
#endif

#include "codec/row_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::codec {
namespace HWY_NAMESPACE {

// The interval that holds each slot; `values` become the values.
HWY_INLINE Interval Find(const BaseLookup& table, U16 slot, U16& values) {
  U16 index = Set(kIndexOrigin);
  index = AddWhere(AtLeast(slot, Lookup(table.first, index)), index, Set(4 * kIndexUnit));
  index = AddWhere(AtLeast(slot, Lookup(table.second, index)), index, Set(2 * kIndexUnit));
  index = AddWhere(AtLeast(slot, Lookup(table.third, index)), index, Set(kIndexUnit));
  const U16 odd = Lookup(table.odd, index);
  const Mask is_odd = AtLeast(slot, odd);
  const U16 start = hn::IfThenElse(is_odd, odd, Lookup(table.even, index));
  const U16 end = hn::IfThenElse(is_odd, Lookup(table.end, index), odd);
  // The low byte of an index is the even symbol.
  values = hn::Sub(hn::And(index, Set(0xff)), Set(kBaseZero));
  values = AddWhere(is_odd, values, Set(1));
  return {start, hn::Sub(end, start)};
}

// The same; `values` are the parents before.
HWY_INLINE Interval Find(const RefinementLookup& table, U16 slot, U16& values) {
  const TagI16 d;
  const auto parents = hn::BitCast(d, values);
  const auto limit = hn::Set(d, kContextLimit);
  const U16 clipped = hn::BitCast(TagU16(), hn::Min(hn::Max(parents, hn::Neg(limit)), limit));
  const U16 index =
      hn::Add(hn::Mul(clipped, Set(kIndexUnit)), Set(kContextLimit * kIndexUnit + kIndexOrigin));
  const U16 one = Lookup(table.one, index);
  const U16 two = Lookup(table.two, index);
  const Mask past_one = AtLeast(slot, one);
  const Mask past_two = AtLeast(slot, two);
  const U16 start = hn::IfThenElse(past_two, two, hn::IfThenElseZero(past_one, one));
  const U16 end = hn::IfThenElse(past_two, Set(kProbScale), hn::IfThenElse(past_one, two, one));
  values = hn::Add(hn::Add(values, values), hn::Sub(values, Set(1)));
  values = AddWhere(past_two, AddWhere(past_one, values, Set(1)), Set(1));
  return {start, hn::Sub(end, start)};
}

// The states of one stream, in registers.
struct States {
  U16 low[kVectors];
  U16 high[kVectors];
  const std::byte* next;
};

// One step of a stream. kPartial: of the first `count` lanes only.
template <bool kPartial, typename Lookup>
HWY_INLINE void DecodeStep(const Lookup& table, size_t count, States& states, uint16_t* values) {
  const TagU16 d;
  HWY_UNROLL(4)
  for (size_t v = 0; v < kVectors; ++v) {
    U16 low = states.low[v];
    U16 high = states.high[v];
    U16 decoded = hn::LoadU(d, values + v * kPerVector);
    const U16 slot = hn::And(low, Set(kProbScale - 1));
    const Interval symbol = Find(table, slot, decoded);
    hn::StoreU(decoded, d, values + v * kPerVector);
    Advance(symbol, slot, low, high);
    if constexpr (kPartial) {
      const size_t begin = v * kPerVector;
      const Mask valid = hn::FirstN(d, count > begin ? count - begin : 0);
      low = hn::IfThenElse(valid, low, states.low[v]);
      high = hn::IfThenElse(valid, high, states.high[v]);
    }
    const Mask need = hn::Eq(high, hn::Zero(d));
    states.high[v] = hn::IfThenElse(need, low, high);
    states.low[v] = TakeWords(need, low, states.next);
  }
}

HWY_INLINE void RefillIfNeeded(RowStream& stream, States& states) {
  if (HWY_UNLIKELY(states.next > stream.limit)) {
    stream.next = states.next;
    stream.Refill();
    states.next = stream.next;
  }
}

// A row of each of kStreams streams, step by step in turn.
template <size_t kStreams, typename Lookup>
HWY_NOINLINE void DecodeTogether(const DecodeRow<Lookup>* rows, size_t num_tokens) {
  const TagU16 d;
  States states[kStreams];
  HWY_UNROLL(4)
  for (size_t s = 0; s < kStreams; ++s) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      states[s].low[v] = hn::Load(d, rows[s].stream->low.data() + v * kPerVector);
      states[s].high[v] = hn::Load(d, rows[s].stream->high.data() + v * kPerVector);
    }
    states[s].next = rows[s].stream->next;
  }
  size_t t = 0;
  for (; t + kLanes <= num_tokens; t += kLanes) {
    HWY_UNROLL(4)
    for (size_t s = 0; s < kStreams; ++s) {
      RefillIfNeeded(*rows[s].stream, states[s]);
      DecodeStep<false>(*rows[s].table, kLanes, states[s],
                        reinterpret_cast<uint16_t*>(rows[s].values + t));
    }
  }
  HWY_UNROLL(4)
  for (size_t s = 0; s < kStreams; ++s) {
    if (const size_t count = num_tokens - t; count > 0) {
      RefillIfNeeded(*rows[s].stream, states[s]);
      uint16_t values[kLanes] = {};
      std::copy_n(rows[s].values + t, count, values);
      DecodeStep<true>(*rows[s].table, count, states[s], values);
      std::copy_n(values, count, rows[s].values + t);
    }
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(states[s].low[v], d, rows[s].stream->low.data() + v * kPerVector);
      hn::Store(states[s].high[v], d, rows[s].stream->high.data() + v * kPerVector);
    }
    rows[s].stream->next = states[s].next;
  }
}

// Streams whose states fit the registers.
static_assert(kRowsAtOnce <= 4);
inline constexpr size_t kTogether = kVectors >= kRowsAtOnce ? 1 : kRowsAtOnce / kVectors;

template <typename Lookup>
void DecodeRows(std::span<const DecodeRow<Lookup>> rows, size_t num_tokens) {
  const DecodeRow<Lookup>* row = rows.data();
  size_t left = rows.size();
  for (; left >= kTogether; left -= kTogether, row += kTogether) {
    DecodeTogether<kTogether>(row, num_tokens);
  }
  if constexpr (kTogether > 2) {
    if (left == 3) return DecodeTogether<3>(row, num_tokens);
    if (left == 2) return DecodeTogether<2>(row, num_tokens);
  }
  if (left == 1) DecodeTogether<1>(row, num_tokens);
}

void DecodeBase(std::span<const DecodeRow<BaseLookup>> rows, size_t num_tokens) {
  DecodeRows(rows, num_tokens);
}

void DecodeRefinement(std::span<const DecodeRow<RefinementLookup>> rows, size_t num_tokens) {
  DecodeRows(rows, num_tokens);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::codec
HWY_AFTER_NAMESPACE();
#endif
