#include "codec/row_coding.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/row_kernels.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

std::vector<uint32_t> CodedRows(std::span<const uint8_t> classes) {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < classes.size(); ++row) {
    if (classes[row] != 0) rows.push_back(row);
  }
  return rows;
}

size_t NumSubstreams(size_t num_rows, size_t num_tokens) {
  const size_t wanted = (num_rows * num_tokens + kSubstreamSymbols / 2) / kSubstreamSymbols;
  return std::min(std::max<size_t>(wanted, 1), num_rows);
}

template <typename Lookup>
using EncodeKernel = void (*)(const EncodeRow<Lookup>&, size_t);
template <typename Lookup>
using DecodeKernel = void (*)(std::span<const DecodeRow<Lookup>>, size_t);

// What kernels look up, class by class.
template <typename Lookup, typename Table>
std::vector<Lookup> LookupsOf(const std::vector<Table>& tables) {
  return std::vector<Lookup>(tables.begin(), tables.end());
}

// The substreams: count, then rows and bytes of each, then their bytes.
template <typename Lookup>
void EncodeRows(std::span<const Lookup> lookups, std::span<const uint8_t> classes,
                size_t num_tokens, std::span<const int16_t> values, EncodeKernel<Lookup> encode,
                ByteWriter& writer) {
  const std::vector<uint32_t> rows = CodedRows(classes);
  const size_t count = NumSubstreams(rows.size(), num_tokens);
  writer.Write<uint32_t>(count);
  if (count == 0) return;
  const size_t directory = writer.size();
  for (size_t i = 0; i < 2 * count; ++i) writer.Write<uint32_t>(0);
  RowSink sink((rows.size() / count + 1) * num_tokens);
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = rows.size() * i / count;
    const size_t end = rows.size() * (i + 1) / count;
    sink.Reset();
    for (size_t r = end; r > begin; --r) {
      const uint32_t row = rows[r - 1];
      encode({&sink, &lookups[classes[row] - 1], values.data() + row * num_tokens}, num_tokens);
    }
    writer.Patch<uint32_t>(directory + 8 * i, end - begin);
    writer.Patch<uint32_t>(directory + 8 * i + 4, sink.size());
    sink.Finish(writer);
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

struct Coded {
  std::span<const std::byte> bytes;
  std::span<const uint32_t> rows;
};

// Divides the rows into the substreams that the directory tells of.
absl::Status ReadSubstreams(std::span<const uint32_t> rows, ByteReader& reader,
                            std::vector<Coded>& coded) {
  std::vector<Substream> substreams;
  RETURN_IF_ERROR(ReadDirectory(rows.size(), reader, substreams));
  for (size_t i = 0; i < substreams.size(); ++i) {
    Coded& substream = coded.emplace_back();
    RETURN_IF_ERROR(
        reader.ReadBytes(absl::StrCat("substream ", i), substreams[i].num_bytes, substream.bytes));
    substream.rows = rows.first(substreams[i].num_rows);
    rows = rows.subspan(substreams[i].num_rows);
  }
  return absl::OkStatus();
}

// Decodes the rows of class > 0, of up to kRowsAtOnce substreams in turn.
template <typename Lookup>
absl::Status DecodeRows(std::span<const Lookup> lookups, std::span<const uint8_t> classes,
                        size_t num_tokens, DecodeKernel<Lookup> decode, ByteReader& reader,
                        std::span<int16_t> values) {
  const std::vector<uint32_t> rows = CodedRows(classes);
  std::vector<Coded> coded;
  RETURN_IF_ERROR(ReadSubstreams(rows, reader, coded));
  std::array<RowStream, kRowsAtOnce> streams;
  std::array<DecodeRow<Lookup>, kRowsAtOnce> tasks;
  std::array<std::span<const uint32_t>, kRowsAtOnce> rows_left;
  for (size_t i = 0; i < kRowsAtOnce; ++i) tasks[i].stream = &streams[i];
  size_t next = 0;
  size_t active = 0;
  do {
    for (; active < kRowsAtOnce && next < coded.size(); ++active, ++next) {
      RETURN_IF_ERROR(tasks[active].stream->Init(coded[next].bytes));
      rows_left[active] = coded[next].rows;
    }
    for (size_t i = 0; i < active; ++i) {
      const uint32_t row = rows_left[i].front();
      rows_left[i] = rows_left[i].subspan(1);
      tasks[i].table = &lookups[classes[row] - 1];
      tasks[i].values = values.data() + row * num_tokens;
    }
    decode(std::span(tasks).first(active), num_tokens);
    for (size_t i = active; i-- > 0;) {
      if (!rows_left[i].empty()) continue;
      RETURN_IF_ERROR(tasks[i].stream->Finish());
      --active;
      std::swap(tasks[i], tasks[active]);
      std::swap(rows_left[i], rows_left[active]);
    }
  } while (active > 0 || next < coded.size());
  return absl::OkStatus();
}

}  // namespace

void SetParents(std::span<const int16_t> values, std::span<int16_t> parents) {
  BestRowKernels().parents(values, parents.data());
}

size_t FindEscape(std::span<const int16_t> values, size_t begin) {
  return BestRowKernels().find_escape(values, begin);
}

void EncodeBaseRows(const ClassTables& tables, std::span<const uint8_t> classes, size_t num_tokens,
                    std::span<const int16_t> values, ByteWriter& writer) {
  const auto lookups = LookupsOf<BaseLookup>(tables.base);
  EncodeRows<BaseLookup>(lookups, classes, num_tokens, values, BestRowKernels().encode_base,
                         writer);
}

absl::Status DecodeBaseRows(const ClassTables& tables, std::span<const uint8_t> classes,
                            size_t num_tokens, ByteReader& reader, std::span<int16_t> values) {
  for (size_t row = 0; row < classes.size(); ++row) {
    if (classes[row] == 0) std::fill_n(values.data() + row * num_tokens, num_tokens, int16_t{0});
  }
  const auto lookups = LookupsOf<BaseLookup>(tables.base);
  return DecodeRows<BaseLookup>(lookups, classes, num_tokens, BestRowKernels().decode_base, reader,
                                values);
}

void EncodeRefinementRows(const ClassTables& tables, std::span<const uint8_t> classes,
                          size_t num_tokens, std::span<const int16_t> values, ByteWriter& writer) {
  const auto lookups = LookupsOf<RefinementLookup>(tables.refinement);
  EncodeRows<RefinementLookup>(lookups, classes, num_tokens, values,
                               BestRowKernels().encode_refinement, writer);
}

absl::Status DecodeRefinementRows(const ClassTables& tables, std::span<const uint8_t> classes,
                                  size_t num_tokens, ByteReader& reader,
                                  std::span<int16_t> values) {
  for (size_t row = 0; row < classes.size(); ++row) {
    if (classes[row] != 0) continue;
    for (int16_t& value : values.subspan(row * num_tokens, num_tokens)) {
      value = static_cast<int16_t>(3 * value);
    }
  }
  const auto lookups = LookupsOf<RefinementLookup>(tables.refinement);
  return DecodeRows<RefinementLookup>(lookups, classes, num_tokens,
                                      BestRowKernels().decode_refinement, reader, values);
}

}  // namespace sluice::codec
