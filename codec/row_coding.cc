#include "codec/row_coding.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/rans.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

size_t ContextOf(int parent) {
  return std::clamp(parent, -kContextLimit, kContextLimit) + kContextLimit;
}

std::vector<uint32_t> CodedRows(std::span<const uint8_t> classes) {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < classes.size(); ++row) {
    if (classes[row] != 0) rows.push_back(row);
  }
  return rows;
}

// The substreams: count, then rows and bytes of each, then their bytes. put_row(row, lanes) puts
// one row, last token first.
template <typename PutRow>
void EncodeRows(std::span<const uint8_t> classes, size_t num_tokens, ByteWriter& writer,
                PutRow put_row) {
  const std::vector<uint32_t> rows = CodedRows(classes);
  const size_t wanted = std::max<size_t>(rows.size() * num_tokens / kSubstreamSymbols, 1);
  const size_t count = std::min(wanted, rows.size());
  writer.Write<uint32_t>(count);
  const size_t directory = writer.size();
  for (size_t i = 0; i < 2 * count; ++i) writer.Write<uint32_t>(0);
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = rows.size() * i / count;
    const size_t end = rows.size() * (i + 1) / count;
    LaneEncoder lanes;
    for (size_t r = end; r > begin; --r) put_row(rows[r - 1], lanes);
    writer.Patch<uint32_t>(directory + 8 * i, end - begin);
    writer.Patch<uint32_t>(directory + 8 * i + 4, lanes.size());
    lanes.Finish(writer);
  }
}

struct Substream {
  uint32_t num_rows = 0;
  uint32_t num_bytes = 0;
};

absl::Status ReadDirectory(size_t coded_rows, ByteReader& reader,
                           std::vector<Substream>& substreams) {
  uint32_t count = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("number of substreams", coded_rows > 0 ? 1 : 0,
                                               coded_rows, count));
  size_t left = coded_rows;
  for (uint32_t i = 0; i < count; ++i) {
    Substream& substream = substreams.emplace_back();
    if (left == 0) return absl::DataLossError("substreams have more rows than are coded");
    RETURN_IF_ERROR(
        reader.ReadInRange<uint32_t>("rows of a substream", 1, left, substream.num_rows));
    RETURN_IF_ERROR(reader.Read("bytes of a substream", substream.num_bytes));
    left -= substream.num_rows;
  }
  if (left != 0) return absl::DataLossError("substreams have fewer rows than are coded");
  return absl::OkStatus();
}

// get_row(row, lanes) gets one row.
template <typename GetRow>
absl::Status DecodeRows(std::span<const uint8_t> classes, ByteReader& reader, GetRow get_row) {
  const std::vector<uint32_t> rows = CodedRows(classes);
  std::vector<Substream> substreams;
  RETURN_IF_ERROR(ReadDirectory(rows.size(), reader, substreams));
  size_t next = 0;
  for (size_t i = 0; i < substreams.size(); ++i) {
    std::span<const std::byte> bytes;
    RETURN_IF_ERROR(
        reader.ReadBytes(absl::StrCat("substream ", i), substreams[i].num_bytes, bytes));
    LaneDecoder lanes;
    RETURN_IF_ERROR(lanes.Init(bytes));
    for (uint32_t r = 0; r < substreams[i].num_rows; ++r) get_row(rows[next++], lanes);
    RETURN_IF_ERROR(lanes.Finish());
  }
  return absl::OkStatus();
}

// Decodes the tokens of a row, a step at a time. find(t, slot) is the symbol of token t, with
// members `start` and `frequency`; it also keeps the symbol.
template <typename Find>
void DecodeSteps(size_t num_tokens, LaneDecoder& stream, Find find) {
  LaneDecoder lanes = stream;
  for (size_t begin = 0; begin < num_tokens; begin += kLanes) {
    const size_t count = std::min(kLanes, num_tokens - begin);
    if (lanes.StepIsSafe()) {
      for (size_t lane = 0; lane < count; ++lane) {
        const auto symbol = find(begin + lane, lanes.Slot(lane));
        lanes.AdvanceUnchecked(lane, symbol.start, symbol.frequency);
      }
    } else {
      for (size_t lane = 0; lane < count; ++lane) {
        const auto symbol = find(begin + lane, lanes.Slot(lane));
        lanes.Advance(lane, symbol.start, symbol.frequency);
      }
    }
  }
  stream = lanes;
}

}  // namespace

void EncodeBaseRows(const ClassTables& tables, std::span<const uint8_t> classes, size_t num_tokens,
                    std::span<const int16_t> values, ByteWriter& writer) {
  EncodeRows(classes, num_tokens, writer, [&](uint32_t row, LaneEncoder& lanes) {
    const BaseTable& table = tables.base[classes[row] - 1];
    const int16_t* row_values = values.data() + row * num_tokens;
    for (size_t t = num_tokens; t-- > 0;) {
      const bool escaped = std::abs(row_values[t]) > kBaseZero;
      const int symbol = escaped ? kEscapeSymbol : row_values[t] + kBaseZero;
      lanes.Put(t % kLanes, table.symbols[symbol].start, table.symbols[symbol].frequency);
    }
  });
}

absl::Status DecodeBaseRows(const ClassTables& tables, std::span<const uint8_t> classes,
                            size_t num_tokens, ByteReader& reader, std::span<int16_t> values) {
  std::fill(values.begin(), values.end(), int16_t{0});
  return DecodeRows(classes, reader, [&](uint32_t row, LaneDecoder& lanes) {
    const BaseTable& table = tables.base[classes[row] - 1];
    int16_t* row_values = values.data() + row * num_tokens;
    DecodeSteps(num_tokens, lanes, [&](size_t t, uint32_t slot) {
      const int symbol = table.symbol_of_slot[slot];
      row_values[t] = static_cast<int16_t>(symbol - kBaseZero);
      return table.symbols[symbol];
    });
  });
}

void EncodeRefinementRows(const ClassTables& tables, std::span<const uint8_t> classes,
                          size_t num_tokens, std::span<const int16_t> values, ByteWriter& writer) {
  EncodeRows(classes, num_tokens, writer, [&](uint32_t row, LaneEncoder& lanes) {
    const RefinementTable& table = tables.refinement[classes[row] - 1];
    const int16_t* row_values = values.data() + row * num_tokens;
    for (size_t t = num_tokens; t-- > 0;) {
      const int parent = ParentOf(row_values[t]);
      const TableSymbol symbol = table.symbols[ContextOf(parent)][row_values[t] - 3 * parent + 1];
      lanes.Put(t % kLanes, symbol.start, symbol.frequency);
    }
  });
}

absl::Status DecodeRefinementRows(const ClassTables& tables, std::span<const uint8_t> classes,
                                  size_t num_tokens, ByteReader& reader,
                                  std::span<int16_t> values) {
  for (int16_t& value : values) value = static_cast<int16_t>(3 * value);
  return DecodeRows(classes, reader, [&](uint32_t row, LaneDecoder& lanes) {
    const RefinementTable& table = tables.refinement[classes[row] - 1];
    int16_t* row_values = values.data() + row * num_tokens;
    DecodeSteps(num_tokens, lanes, [&](size_t t, uint32_t slot) {
      const int tripled = row_values[t];
      const size_t context =
          std::clamp(tripled, -3 * kContextLimit, 3 * kContextLimit) / 3 + kContextLimit;
      const auto& symbols = table.symbols[context];
      const int symbol = (slot >= symbols[1].start) + (slot >= symbols[2].start);
      row_values[t] = static_cast<int16_t>(tripled + symbol - 1);
      return symbols[symbol];
    });
  });
}

}  // namespace sluice::codec
