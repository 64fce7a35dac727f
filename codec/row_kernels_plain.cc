#include <algorithm>
#include <cstring>

#include "codec/row_coding.h"
#include "codec/row_kernels.h"

namespace sluice::codec {
namespace {

// A symbol of a row, and its interval.
struct Found {
  int symbol;
  uint32_t start;
  uint32_t end;
};

size_t ContextOf(int parent) {
  return std::clamp(parent, -kContextLimit, kContextLimit) + kContextLimit;
}

Found FindBase(const BaseLookup& table, uint32_t slot) {
  size_t k = 4 * static_cast<size_t>(slot >= table.first[0]);
  k += 2 * static_cast<size_t>(slot >= table.second[k]);
  k += static_cast<size_t>(slot >= table.third[k]);
  const bool is_odd = slot >= table.odd[k];
  const uint16_t bounds[] = {table.even[k], table.odd[k], table.end[k]};
  return {static_cast<int>(2 * k + is_odd), bounds[is_odd], bounds[is_odd + 1]};
}

Found BaseInterval(const BaseLookup& table, int symbol) {
  const size_t k = symbol / 2;
  return symbol % 2 == 0 ? Found{symbol, table.even[k], table.odd[k]}
                         : Found{symbol, table.odd[k], table.end[k]};
}

Found RefinementInterval(const RefinementLookup& table, size_t context, int symbol) {
  const uint32_t starts[] = {0, table.one[context], table.two[context], kProbScale};
  return {symbol, starts[symbol], starts[symbol + 1]};
}

int BaseSymbol(int16_t value) {
  return std::abs(value) > kBaseZero ? kEscapeSymbol : value + kBaseZero;
}

// find(t, slot) is the symbol of token t, which it also keeps.
template <typename Find>
void DecodePlain(RowStream& stream, size_t num_tokens, Find find) {
  const std::byte* next = stream.next;
  for (size_t t = 0; t < num_tokens; ++t) {
    const size_t lane = t % kLanes;
    if (lane == 0 && next > stream.limit) {
      stream.next = next;
      stream.Refill();
      next = stream.next;
    }
    const uint32_t before = uint32_t{stream.high[lane]} << 16 | stream.low[lane];
    const uint32_t slot = RansSlot(before);
    const Found found = find(t, slot);
    const uint32_t state = RansAdvance(before, found.start, found.end - found.start, slot);
    uint16_t word = 0;
    std::memcpy(&word, next, sizeof(word));
    // A mask, for compilers make a hard to predict branch of a conditional.
    const uint32_t need = -static_cast<uint32_t>(state < kStateLow);
    stream.low[lane] = static_cast<uint16_t>((word & need) | (state & ~need));
    stream.high[lane] = static_cast<uint16_t>(state >> (~need & 16));
    next += need & sizeof(word);
  }
  stream.next = next;
}

// interval_of(t) is the symbol of token t.
template <typename IntervalOf>
void EncodePlain(RowSink& sink, size_t num_tokens, IntervalOf interval_of) {
  for (size_t t = num_tokens; t-- > 0;) {
    const size_t lane = t % kLanes;
    const Found found = interval_of(t);
    const uint32_t freq = found.end - found.start;
    uint32_t state = uint32_t{sink.high[lane]} << 16 | sink.low[lane];
    if (state >= uint64_t{freq} << (32 - kProbBits)) {
      *--sink.front = static_cast<uint16_t>(state);
      state >>= 16;
    }
    state = ((state / freq) << kProbBits) + state % freq + found.start;
    sink.low[lane] = static_cast<uint16_t>(state);
    sink.high[lane] = static_cast<uint16_t>(state >> 16);
  }
}

void DecodeBase(std::span<const DecodeRow<BaseLookup>> rows, size_t num_tokens) {
  for (const DecodeRow<BaseLookup>& row : rows) {
    DecodePlain(*row.stream, num_tokens, [&](size_t t, uint32_t slot) {
      const Found found = FindBase(*row.table, slot);
      row.values[t] = static_cast<int16_t>(found.symbol - kBaseZero);
      return found;
    });
  }
}

void DecodeRefinement(std::span<const DecodeRow<RefinementLookup>> rows, size_t num_tokens) {
  for (const DecodeRow<RefinementLookup>& row : rows) {
    DecodePlain(*row.stream, num_tokens, [&](size_t t, uint32_t slot) {
      const size_t context = ContextOf(row.values[t]);
      const int symbol = (slot >= row.table->one[context]) + (slot >= row.table->two[context]);
      row.values[t] = static_cast<int16_t>(3 * row.values[t] + symbol - 1);
      return RefinementInterval(*row.table, context, symbol);
    });
  }
}

void EncodeBase(const EncodeRow<BaseLookup>& row, size_t num_tokens) {
  EncodePlain(*row.sink, num_tokens,
              [&](size_t t) { return BaseInterval(*row.table, BaseSymbol(row.values[t])); });
}

void EncodeRefinement(const EncodeRow<RefinementLookup>& row, size_t num_tokens) {
  EncodePlain(*row.sink, num_tokens, [&](size_t t) {
    const int parent = ParentOf(row.values[t]);
    return RefinementInterval(*row.table, ContextOf(parent), row.values[t] - 3 * parent + 1);
  });
}

void CountBase(std::span<const int16_t> row, BaseCounts& counts) {
  counts.fill(0);
  for (int16_t value : row) ++counts[BaseSymbol(value)];
}

void CountRefinement(std::span<const int16_t> row, RefinementCounts& counts) {
  counts.fill(0);
  for (int16_t value : row) {
    const int parent = ParentOf(value);
    ++counts[ContextOf(parent) * kRefinementSymbols + value - 3 * parent + 1];
  }
}

size_t NextEscape(std::span<const int16_t> values, size_t begin) {
  const auto is_escape = [](int16_t value) { return BaseSymbol(value) == kEscapeSymbol; };
  return std::find_if(values.begin() + begin, values.end(), is_escape) - values.begin();
}

void Parents(std::span<const int16_t> values, int16_t* parents) {
  std::transform(values.begin(), values.end(), parents, ParentOf);
}

uint32_t CheapestClass(std::span<const uint32_t> counts, const PriceTable& prices,
                       const float* extra) {
  std::vector<float> sums(extra, extra + prices.num_columns());
  for (size_t s = 0; s < counts.size(); ++s) {
    const auto count = static_cast<float>(counts[s]);
    for (size_t c = 0; c < sums.size(); ++c) sums[c] += count * prices.row(s)[c];
  }
  return static_cast<uint32_t>(std::min_element(sums.begin(), sums.end()) - sums.begin());
}

}  // namespace

const RowKernels& PlainRowKernels() {
  static constexpr RowKernels kKernels = {.name = "plain",
                                          .decode_base = DecodeBase,
                                          .decode_refinement = DecodeRefinement,
                                          .encode_base = EncodeBase,
                                          .encode_refinement = EncodeRefinement,
                                          .count_base = CountBase,
                                          .count_refinement = CountRefinement,
                                          .find_escape = NextEscape,
                                          .parents = Parents,
                                          .cheapest_class = CheapestClass};
  return kKernels;
}

}  // namespace sluice::codec
