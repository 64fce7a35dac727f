#include "codec/row_coding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "codec/class_choice.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

// Finest values of rows whose scales differ widely, some all zero.
std::vector<int16_t> RandomValues(size_t rows, size_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<int16_t> values;
  for (size_t r = 0; r < rows; ++r) {
    const double scale = r % 7 == 0 ? 0 : std::exp(4 * normal(random));
    for (size_t t = 0; t < tokens; ++t) {
      const double x = std::clamp(scale * normal(random), -3000.0, 3000.0);
      values.push_back(static_cast<int16_t>(std::lround(x)));
    }
  }
  return values;
}

std::vector<int16_t> Parents(std::vector<int16_t> values) {
  for (int16_t& value : values) value = ParentOf(value);
  return values;
}

TEST(ClassTablesTest, EverySlotHasItsSymbol) {
  const ClassTables& tables = BuiltinTables();
  ASSERT_LT(std::max(tables.base.size(), tables.refinement.size()), 256u);
  for (const BaseTable& table : tables.base) {
    for (uint32_t slot = 0; slot < kProbScale; ++slot) {
      const TableSymbol symbol = table.symbols[table.symbol_of_slot[slot]];
      EXPECT_LE(symbol.start, slot);
      EXPECT_LT(slot, symbol.start + symbol.frequency);
    }
    EXPECT_LE(table.shift.one, 128);
  }
  for (const RefinementTable& table : tables.refinement) {
    for (const auto& context : table.symbols) {
      uint32_t next = 0;
      for (const TableSymbol& symbol : context) {
        EXPECT_EQ(symbol.start, next);
        EXPECT_GE(symbol.frequency, 1);
        next += symbol.frequency;
      }
      EXPECT_EQ(next, kProbScale);
    }
  }
  for (size_t parent = 0; parent <= tables.refinement.size(); ++parent) {
    const uint8_t predicted = tables.PredictRefinementClass(static_cast<uint8_t>(parent));
    EXPECT_GE(predicted, 1);
    EXPECT_LE(predicted, tables.refinement.size());
  }
}

TEST(RowCodingTest, RoundTrip) {
  const ClassTables& tables = BuiltinTables();
  for (size_t tokens : {1, 31, 32, 33, 64, 256, 1000}) {
    for (size_t rows : {1, 2, 50, 700}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << tokens);
      const std::vector<int16_t> fine = RandomValues(rows, tokens, 1);
      const std::vector<int16_t> base = Parents(fine);
      std::vector<uint8_t> base_classes(rows);
      std::vector<uint8_t> classes(rows);
      ChooseBaseClasses(tables, tokens, base, {}, base_classes);
      std::vector<uint8_t> predictions(rows);
      std::transform(base_classes.begin(), base_classes.end(), predictions.begin(),
                     [&](uint8_t parent) { return tables.PredictRefinementClass(parent); });
      ChooseRefinementClasses(tables, tokens, fine, predictions, classes);
      ByteWriter writer;
      EncodeBaseRows(tables, base_classes, tokens, base, writer);
      EncodeRefinementRows(tables, classes, tokens, fine, writer);

      ByteReader reader(writer.bytes());
      std::vector<int16_t> values(fine.size(), 99);
      ASSERT_TRUE(DecodeBaseRows(tables, base_classes, tokens, reader, values).ok());
      for (size_t i = 0; i < values.size(); ++i) {
        const bool escaped = std::abs(base[i]) > kBaseZero;
        EXPECT_EQ(values[i], escaped ? kEscapedValue : base[i]);
      }
      values = base;
      ASSERT_TRUE(DecodeRefinementRows(tables, classes, tokens, reader, values).ok());
      EXPECT_EQ(values, fine);
      EXPECT_EQ(reader.remaining(), 0u);
    }
  }
}

TEST(RowCodingTest, ZeroRowsCostNothing) {
  ByteWriter writer;
  const std::vector<uint8_t> classes(100);
  EncodeBaseRows(BuiltinTables(), classes, 256, std::vector<int16_t>(25600), writer);
  EXPECT_EQ(writer.size(), 4u);
}

TEST(ClassChoiceTest, TakesTheCheapestClass) {
  const ClassTables& tables = BuiltinTables();
  const size_t tokens = 512;
  const std::vector<int16_t> values = Parents(RandomValues(40, tokens, 5));
  std::vector<uint8_t> classes(40);
  ChooseBaseClasses(tables, tokens, values, {}, classes);
  const auto size_with = [&](size_t row, uint8_t c) {
    ByteWriter writer;
    EncodeBaseRows(tables, std::vector<uint8_t>{c}, tokens,
                   std::span(values).subspan(row * tokens, tokens), writer);
    return writer.size();
  };
  for (size_t row = 0; row < 40; ++row) {
    if (classes[row] == 0) continue;
    size_t best = ~size_t{0};
    for (size_t c = 1; c <= tables.base.size(); ++c) best = std::min(best, size_with(row, c));
    EXPECT_LE(size_with(row, classes[row]), best + 4);  // a class near the last is sent for less
  }
}

// One substream of three rows; `change` spoils a byte.
absl::Status DecodeChanged(size_t offset, uint8_t value, size_t dropped_bytes = 0) {
  const std::vector<uint8_t> classes = {20, 0, 21, 22};
  std::vector<int16_t> values(4 * 40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i / 40 == 1 ? 0 : i % 3 - 1;
  ByteWriter writer;
  EncodeBaseRows(BuiltinTables(), classes, 40, values, writer);
  std::string bytes = std::move(writer).Take();
  bytes[offset] = static_cast<char>(value);
  bytes.resize(bytes.size() - dropped_bytes);
  ByteReader reader(AsBytes(bytes));
  return DecodeBaseRows(BuiltinTables(), classes, 40, reader, values);
}

TEST(RowCodingTest, RefusesDamage) {
  const auto message = [](size_t offset, uint8_t value, size_t dropped_bytes = 0) {
    return std::string(DecodeChanged(offset, value, dropped_bytes).message());
  };
  EXPECT_EQ(message(0, 1), "");
  EXPECT_THAT(message(0, 0), HasSubstr("number of substreams"));
  EXPECT_THAT(message(0, 4), HasSubstr("number of substreams"));
  EXPECT_THAT(message(4, 0), HasSubstr("rows of a substream"));
  EXPECT_THAT(message(4, 2), HasSubstr("fewer rows"));
  EXPECT_THAT(message(4, 4), HasSubstr("rows of a substream"));
  EXPECT_THAT(message(11, 0x7f), HasSubstr("substream 0"));
  EXPECT_THAT(message(0, 1, 1), HasSubstr("substream 0"));
  EXPECT_THAT(message(12 + 2, 0xff), HasSubstr("rANS"));
  EXPECT_THAT(message(12 + 126, 0xf7), HasSubstr("rANS"));
}

}  // namespace
}  // namespace sluice::codec
