// Every set of vector instructions, plain C++ among them, against the coder of rans.h, which says
// lane by lane what FORMAT.md says.
#include "codec/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <vector>

#define HWY_WANT_AVX3_DL
#include "codec/row_coding.h"
#include "hwy/highway.h"

namespace sluice::codec {
namespace {

constexpr size_t kTokenCounts[] = {1, 31, 32, 33, 63, 255, 256, 1000, 4096};

// `count` frequencies that sum to kProbScale, from even to one that has nearly all.
std::vector<uint16_t> RandomFrequencies(size_t count, std::mt19937& random) {
  std::vector<uint16_t> frequencies(count, 1);
  size_t left = kProbScale - count;
  const size_t favourites = 1 + random() % count;
  for (size_t i = 0; i < favourites; ++i) {
    const size_t given = i + 1 == favourites ? left : random() % (left + 1);
    frequencies[random() % count] += static_cast<uint16_t>(given);
    left -= given;
  }
  return frequencies;
}

void SetIntervals(const std::vector<uint16_t>& frequencies, std::span<TableSymbol> symbols) {
  uint16_t start = 0;
  for (size_t s = 0; s < symbols.size(); ++s) {
    symbols[s] = {start, frequencies[s]};
    start += frequencies[s];
  }
}

BaseTable RandomBaseTable(std::mt19937& random) {
  BaseTable table;
  SetIntervals(RandomFrequencies(kBaseSymbols, random), table.symbols);
  return table;
}

RefinementTable RandomRefinementTable(std::mt19937& random) {
  RefinementTable table;
  for (auto& context : table.symbols) {
    SetIntervals(RandomFrequencies(kRefinementSymbols, random), context);
  }
  return table;
}

// Values of all sizes, mostly small.
std::vector<int16_t> RandomValues(size_t count, std::mt19937& random) {
  std::vector<int16_t> values(count);
  for (int16_t& value : values) {
    const int limit = std::vector<int>{0, 1, 3, 8, 22, 300, 32000}[random() % 7];
    value = static_cast<int16_t>(static_cast<int>(random() % (2 * limit + 1)) - limit);
  }
  return values;
}

// A symbol's interval and the value that is kept for it.
struct Coded {
  TableSymbol interval;
  int16_t value;
};

// The symbols that can follow where `value` is before decoding.
std::array<Coded, kBaseSymbols> Choices(const BaseTable& table, int16_t value) {
  std::array<Coded, kBaseSymbols> choices;
  for (int s = 0; s < kBaseSymbols; ++s) {
    choices[s] = {table.symbols[s], static_cast<int16_t>(s - kBaseZero)};
  }
  return choices;
}

std::array<Coded, kRefinementSymbols> Choices(const RefinementTable& table, int16_t parent) {
  const int context = std::clamp<int>(parent, -kContextLimit, kContextLimit) + kContextLimit;
  std::array<Coded, kRefinementSymbols> choices;
  for (int s = 0; s < kRefinementSymbols; ++s) {
    choices[s] = {table.symbols[context][s], static_cast<int16_t>(3 * parent + s - 1)};
  }
  return choices;
}

// The interval of a value to be encoded.
TableSymbol IntervalOf(const BaseTable& table, int16_t value) {
  return table.symbols[std::abs(value) > kBaseZero ? kEscapeSymbol : value + kBaseZero];
}

TableSymbol IntervalOf(const RefinementTable& table, int16_t value) {
  const int16_t parent = ParentOf(value);
  return Choices(table, parent)[value - 3 * parent + 1].interval;
}

// A stream of rows, each with its own table.
template <typename Table, typename Lookup>
struct Rows {
  Rows(size_t count, size_t tokens, std::mt19937& random, Table (*make_table)(std::mt19937&))
      : num_tokens(tokens), values(RandomValues(count * tokens, random)) {
    for (size_t i = 0; i < count; ++i) {
      tables.push_back(make_table(random));
      lookups.emplace_back(tables.back());
    }
  }

  size_t size() const { return tables.size(); }

  std::string Encode(void (*encode)(const EncodeRow<Lookup>&, size_t)) const {
    RowSink sink(values.size());
    for (size_t i = size(); i-- > 0;) {
      encode({&sink, &lookups[i], values.data() + i * num_tokens}, num_tokens);
    }
    ByteWriter writer;
    sink.Finish(writer);
    EXPECT_EQ(sink.size(), writer.size());
    return std::move(writer).Take();
  }

  std::string EncodeByLanes() const {
    LaneEncoder lanes;
    for (size_t i = values.size(); i-- > 0;) {
      const TableSymbol symbol = IntervalOf(tables[i / num_tokens], values[i]);
      lanes.Put(i % num_tokens % kLanes, symbol.start, symbol.frequency);
    }
    ByteWriter writer;
    lanes.Finish(writer);
    return std::move(writer).Take();
  }

  // Decodes into `out`, which has the values before.
  absl::Status DecodeByLanes(std::span<const std::byte> stream, std::vector<int16_t>& out) const {
    LaneDecoder lanes;
    if (const absl::Status status = lanes.Init(stream); !status.ok()) return status;
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t lane = i % num_tokens % kLanes;
      for (const Coded& choice : Choices(tables[i / num_tokens], out[i])) {
        const TableSymbol symbol = choice.interval;
        if (lanes.Slot(lane) - symbol.start >= symbol.frequency) continue;
        lanes.Advance(lane, symbol.start, symbol.frequency);
        out[i] = choice.value;
        break;
      }
    }
    return lanes.Finish();
  }

  size_t num_tokens;
  std::vector<int16_t> values;
  std::vector<Table> tables;
  std::vector<Lookup> lookups;
};

using BaseRows = Rows<BaseTable, BaseLookup>;
using RefinementRows = Rows<RefinementTable, RefinementLookup>;

// What comes out of streams, damaged or not.
struct Decoded {
  bool operator==(const Decoded&) const = default;
  std::vector<std::vector<int16_t>> values;
  std::vector<std::string> messages;
};

// Decodes streams of as many rows side by side, or nothing if one cannot be begun; `values` are
// those before.
template <typename R, typename Lookup>
Decoded DecodeStreams(const std::vector<R>& streams, const std::vector<std::string>& bytes,
                      void (*decode)(std::span<const DecodeRow<Lookup>>, size_t),
                      std::vector<std::vector<int16_t>> values) {
  Decoded decoded = {std::move(values), {}};
  std::vector<RowStream> row_streams(streams.size());
  std::vector<std::vector<std::byte>> copies;  // end where their memory does
  for (size_t i = 0; i < streams.size(); ++i) {
    const auto stream = AsBytes(bytes[i]);
    copies.emplace_back(stream.begin(), stream.end());
    const absl::Status status = row_streams[i].Init(copies[i]);
    if (!status.ok()) return {{}, {std::string(status.message())}};
  }
  for (size_t r = 0; r < streams[0].size(); ++r) {
    std::vector<DecodeRow<Lookup>> rows;
    for (size_t i = 0; i < streams.size(); ++i) {
      int16_t* row = decoded.values[i].data() + r * streams[i].num_tokens;
      rows.push_back({&row_streams[i], &streams[i].lookups[r], row});
    }
    decode(rows, streams[0].num_tokens);
  }
  for (const RowStream& stream : row_streams) {
    decoded.messages.emplace_back(stream.Finish().message());
  }
  return decoded;
}

template <typename R>
Decoded DecodeStreamsByLanes(const std::vector<R>& streams, const std::vector<std::string>& bytes,
                             std::vector<std::vector<int16_t>> values) {
  Decoded decoded = {std::move(values), {}};
  for (size_t i = 0; i < streams.size(); ++i) {
    LaneDecoder lanes;
    const absl::Status status = lanes.Init(AsBytes(bytes[i]));
    if (!status.ok()) return {{}, {std::string(status.message())}};
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    const auto status = streams[i].DecodeByLanes(AsBytes(bytes[i]), decoded.values[i]);
    decoded.messages.emplace_back(status.message());
  }
  return decoded;
}

// Flips bytes, or cuts the end off, or both.
std::string Damage(std::string bytes, std::mt19937& random) {
  const size_t kind = random() % 4;
  if (kind != 0) {
    for (size_t i = 0; i <= kind; ++i) bytes[random() % bytes.size()] ^= 1 << random() % 8;
  }
  if (kind != 1) {
    const size_t words = (bytes.size() - kRansStateBytes) / 2;
    const size_t cut = std::min<size_t>(words, random() % 70);
    bytes.resize(bytes.size() - 2 * cut);
  }
  return bytes;
}

class RowKernelsTest : public testing::TestWithParam<int64_t> {
 protected:
  RowKernelsTest() { hwy::SetSupportedTargetsForTest(GetParam()); }
  ~RowKernelsTest() override { hwy::SetSupportedTargetsForTest(0); }

  // The same bytes as the lanes of rans.h; the same values and errors, damaged or not.
  template <typename R, typename Table, typename Lookup, typename Expected>
  void Check(Table (*make_table)(std::mt19937&),
             void (*RowKernels::*encode)(const EncodeRow<Lookup>&, size_t),
             void (*RowKernels::*decode)(std::span<const DecodeRow<Lookup>>, size_t),
             Expected expected_before_and_after) {
    const RowKernels& kernels = BestRowKernels();
    std::mt19937 random(1);
    for (size_t tokens : kTokenCounts) {
      for (size_t count : {1, 2, 3, 4}) {
        SCOPED_TRACE(testing::Message() << count << " streams of rows of " << tokens);
        std::vector<R> streams;
        std::vector<std::string> bytes;
        std::vector<std::vector<int16_t>> before;
        std::vector<std::vector<int16_t>> after;
        for (size_t i = 0; i < count; ++i) {
          streams.emplace_back(1 + tokens % 3, tokens, random, make_table);
          bytes.push_back(streams[i].Encode(kernels.*encode));
          EXPECT_EQ(bytes[i], streams[i].EncodeByLanes());
          before.push_back(streams[i].values);
          after.push_back(streams[i].values);
          expected_before_and_after(before[i], after[i]);
        }
        const Decoded good = DecodeStreams(streams, bytes, kernels.*decode, before);
        EXPECT_EQ(good.values, after);
        EXPECT_EQ(good.messages, std::vector<std::string>(count));
        for (int i = 0; i < 4; ++i) {
          std::vector<std::string> damaged;
          for (const std::string& stream : bytes) damaged.push_back(Damage(stream, random));
          EXPECT_EQ(DecodeStreams(streams, damaged, kernels.*decode, before),
                    DecodeStreamsByLanes(streams, damaged, before));
        }
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, RowKernelsTest,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

TEST_P(RowKernelsTest, IsTheTargetItself) {
  const bool is_plain = (GetParam() & (HWY_SCALAR | HWY_EMU128)) != 0;
  EXPECT_STREQ(BestRowKernels().name, is_plain ? "plain" : hwy::TargetName(GetParam()));
}

TEST_P(RowKernelsTest, BaseRows) {
  Check<BaseRows>(RandomBaseTable, &RowKernels::encode_base, &RowKernels::decode_base,
                  [](std::vector<int16_t>& before, std::vector<int16_t>& after) {
                    std::fill(before.begin(), before.end(), int16_t{77});
                    for (int16_t& value : after) {
                      if (std::abs(value) > kBaseZero) value = kEscapedValue;
                    }
                  });
}

TEST_P(RowKernelsTest, RefinementRows) {
  Check<RefinementRows>(RandomRefinementTable, &RowKernels::encode_refinement,
                        &RowKernels::decode_refinement,
                        [](std::vector<int16_t>& before, std::vector<int16_t>&) {
                          for (int16_t& value : before) value = ParentOf(value);
                        });
}

// Each value on its own, in all parents' contexts.
TEST_P(RowKernelsTest, AllValues) {
  std::vector<int16_t> values(2 * 32767 + 1);
  std::iota(values.begin(), values.end(), int16_t{-32767});
  const std::span<const int16_t> all = values;
  for (size_t begin = 0; begin + 331 <= all.size(); begin += 331) {
    const auto row = all.subspan(begin, 331);
    BaseCounts base;
    BaseCounts expected_base;
    BestRowKernels().count_base(row, base);
    PlainRowKernels().count_base(row, expected_base);
    EXPECT_EQ(base, expected_base);
    RefinementCounts refinement;
    RefinementCounts expected_refinement;
    BestRowKernels().count_refinement(row, refinement);
    PlainRowKernels().count_refinement(row, expected_refinement);
    EXPECT_EQ(refinement, expected_refinement);
    std::vector<int16_t> parents(row.size());
    BestRowKernels().parents(row, parents.data());
    for (size_t i = 0; i < row.size(); ++i) ASSERT_EQ(parents[i], ParentOf(row[i])) << row[i];
  }
}

TEST_P(RowKernelsTest, FindsEscapes) {
  std::mt19937 random(4);
  for (size_t size : {0, 1, 16, 31, 32, 33, 300}) {
    std::vector<int16_t> values = RandomValues(size, random);
    for (size_t i = 0; i + size / 3 < size; ++i) values[i] = static_cast<int16_t>(values[i] % 8);
    for (size_t begin = 0; begin <= size; ++begin) {
      EXPECT_EQ(BestRowKernels().find_escape(values, begin),
                PlainRowKernels().find_escape(values, begin));
    }
  }
}

TEST_P(RowKernelsTest, CheapestClass) {
  std::mt19937 random(2);
  for (size_t classes : {1, 2, 15, 16, 17, 24, 32, 64, 255}) {
    for (int i = 0; i < 20; ++i) {
      std::vector<std::vector<float>> bits(kBaseSymbols, std::vector<float>(classes));
      for (auto& row : bits) {
        for (float& price : row) price = static_cast<float>(random() % (i + 1));  // many are equal
      }
      const PriceTable prices(bits);
      std::vector<float> extra(prices.num_columns());
      for (float& price : extra) price = static_cast<float>(random() % (i + 1)) / 3;
      BaseCounts counts = {};
      for (int n = 0; n < 9; ++n) ++counts[random() % counts.size()];
      const uint32_t best = BestRowKernels().cheapest_class(counts, prices, extra.data());
      EXPECT_EQ(best, PlainRowKernels().cheapest_class(counts, prices, extra.data()));
      EXPECT_LT(best, classes);
    }
  }
}

// States and frequencies at the edges of what divisions can be asked.
TEST_P(RowKernelsTest, AllFrequencies) {
  for (uint16_t freq = 1; freq < kProbScale - 1; ++freq) {
    RefinementTable table;
    for (auto& context : table.symbols) {
      const auto rest = static_cast<uint16_t>(kProbScale - 1 - freq);
      SetIntervals({freq, rest, 1}, context);
    }
    const RefinementLookup lookup(table);
    std::vector<int16_t> values;
    for (int t = 0; t < 320; ++t)
      values.push_back(static_cast<int16_t>((t * t / 7 + freq) % 3 - 1));
    RowSink sink(values.size());
    RowSink expected(values.size());
    // From the largest states down to the smallest; multiples of the frequency, and one less.
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t largest = static_cast<uint32_t>((uint64_t{freq} << 20) - 1);
      const uint32_t state = std::max(largest / (1 + lane / 4) / freq * freq - lane % 2, kStateLow);
      sink.low[lane] = expected.low[lane] = static_cast<uint16_t>(state);
      sink.high[lane] = expected.high[lane] = static_cast<uint16_t>(state >> 16);
    }
    BestRowKernels().encode_refinement({&sink, &lookup, values.data()}, values.size());
    PlainRowKernels().encode_refinement({&expected, &lookup, values.data()}, values.size());
    ASSERT_EQ(sink.low, expected.low) << freq;
    ASSERT_EQ(sink.high, expected.high) << freq;
    ASSERT_EQ(sink.size(), expected.size()) << freq;
  }
}

// Substreams of unlike numbers of rows.
TEST_P(RowKernelsTest, UnevenSubstreams) {
  const size_t num_tokens = 70;
  const std::vector<uint32_t> runs = {3, 1, 7, 2, 2, 9, 1};
  std::mt19937 random(3);
  std::vector<uint8_t> classes;
  std::vector<int16_t> values;
  ByteWriter directory;
  ByteWriter streams;
  directory.Write<uint32_t>(runs.size());
  for (uint32_t rows : runs) {
    const std::vector<uint8_t> run_classes(rows, static_cast<uint8_t>(10 + rows));
    std::vector<int16_t> run_values = RandomValues(rows * num_tokens, random);
    for (int16_t& value : run_values) value = std::clamp<int16_t>(value, -kBaseZero, kBaseZero);
    ByteWriter one;
    EncodeBaseRows(BuiltinTables(), run_classes, num_tokens, run_values, one);
    const auto stream = one.bytes().subspan(12);
    directory.Write<uint32_t>(rows);
    directory.Write<uint32_t>(stream.size());
    streams.WriteBytes(stream);
    classes.insert(classes.end(), run_classes.begin(), run_classes.end());
    values.insert(values.end(), run_values.begin(), run_values.end());
    classes.push_back(0);  // a row of zeros after each
    values.insert(values.end(), num_tokens, 0);
  }
  directory.WriteBytes(streams.bytes());
  ByteReader reader(directory.bytes());
  std::vector<int16_t> decoded(values.size(), 5);
  EXPECT_TRUE(DecodeBaseRows(BuiltinTables(), classes, num_tokens, reader, decoded).ok());
  EXPECT_EQ(decoded, values);
}

}  // namespace
}  // namespace sluice::codec
