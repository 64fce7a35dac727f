#include "codec/calibration_bytes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr size_t kLevelBytes = 4 * sizeof(float);

size_t PaddingAt(size_t offset) {
  return (kBasisAlignment - offset % kBasisAlignment) % kBasisAlignment;
}

void WriteTables(const ClassTables& tables, bool base_layer, ByteWriter& writer) {
  writer.Write<uint8_t>(tables.num_classes(base_layer));
  for (const BaseTable& table : tables.base) {
    for (uint16_t frequency : table.Frequencies()) writer.Write<uint16_t>(frequency);
  }
  for (const RefinementTable& table : tables.refinement) {
    for (const auto& context : table.Frequencies()) {
      for (uint16_t frequency : context) writer.Write<uint16_t>(frequency);
    }
  }
}

absl::Status ReadFrequencies(const std::string& name, ByteReader& reader,
                             std::span<uint16_t> frequencies) {
  RETURN_IF_ERROR(reader.ReadInto(name, std::as_writable_bytes(frequencies)));
  if (AreValid(frequencies)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(name, " do not sum to ", kProbScale, " or have a zero"));
}

absl::Status ReadTables(size_t layer, ByteReader& reader, ClassTables& tables) {
  const std::string name = absl::StrCat("tables[", layer, "]");
  uint8_t count = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint8_t>(name + " number of classes", 1, kMaxClasses, count));
  std::vector<BaseFrequencies> base(layer == 0 ? count : 0);
  for (size_t c = 0; c < base.size(); ++c) {
    RETURN_IF_ERROR(ReadFrequencies(absl::StrCat(name, "[", c, "]"), reader, base[c]));
  }
  if (layer == 0) {
    tables = MakeBaseTables(base, std::vector<CentroidShift>(base.size()));
    return absl::OkStatus();
  }
  std::vector<RefinementFrequencies> refinement(count);
  for (size_t c = 0; c < refinement.size(); ++c) {
    for (auto& context : refinement[c]) {
      RETURN_IF_ERROR(ReadFrequencies(absl::StrCat(name, "[", c, "]"), reader, context));
    }
  }
  tables = MakeRefinementTables(refinement);
  return absl::OkStatus();
}

// Every element finite and small, so that no sum can overflow; no row or column all zero, as one of
// a matrix that has an inverse. One pass.
absl::Status CheckBasis(const std::string& name, size_t channels,
                        std::span<const std::byte> basis) {
  const auto limit = static_cast<uint16_t>(std::bit_cast<uint32_t>(kMaxBasisElement) >> 16);
  bool fits = true, rows_used = true;
  std::vector<uint16_t> row(channels), columns(channels);  // columns: bits of all rows so far
  for (size_t r = 0; r < channels; ++r) {
    const size_t row_bytes = channels * sizeof(uint16_t);
    std::memcpy(row.data(), basis.data() + r * row_bytes, row_bytes);
    uint16_t largest = 0;
    for (size_t c = 0; c < channels; ++c) {
      const auto magnitude = static_cast<uint16_t>(row[c] & 0x7fff);
      largest = std::max(largest, magnitude);
      columns[c] |= magnitude;
    }
    fits &= largest <= limit;
    rows_used &= largest > 0;
  }
  if (!fits) {
    return absl::DataLossError(name + ".basis has an element that is not finite or too large");
  }
  if (!rows_used || std::ranges::find(columns, 0) != columns.end()) {
    return absl::DataLossError(name + ".basis has a row or a column of zeros: it has no inverse");
  }
  return absl::OkStatus();
}

absl::Status ReadGroup(const std::string& name, int num_levels, size_t channels, ByteReader& reader,
                       GroupCalibration& group, size_t& basis_offset) {
  for (int layer = 0; layer < num_levels; ++layer) {
    std::span<const std::byte> classes;
    RETURN_IF_ERROR(reader.ReadBytes(name + ".classes", channels, classes));
    std::vector<uint8_t>& of_layer = group.classes.emplace_back(channels);
    if (channels > 0) std::memcpy(of_layer.data(), classes.data(), channels);
  }
  std::span<const std::byte> bytes;
  RETURN_IF_ERROR(reader.ReadBytes(name + ".means", channels * sizeof(float), bytes));
  group.means.resize(channels);
  if (channels > 0) std::memcpy(group.means.data(), bytes.data(), bytes.size());
  RETURN_IF_ERROR(reader.ReadBytes(name + " padding", PaddingAt(reader.position()), bytes));
  for (std::byte padding : bytes) {
    if (padding != std::byte{0}) return absl::DataLossError(name + " padding is not zero");
  }
  basis_offset = reader.position();
  RETURN_IF_ERROR(reader.ReadBytes(name + ".basis", channels * channels * sizeof(uint16_t), bytes));
  return CheckBasis(name, channels, bytes);
}

}  // namespace

void WriteCalibration(const Calibration& calibration, ByteWriter& writer) {
  writer.Write<uint32_t>(calibration.num_contexts);
  writer.Write<uint64_t>(calibration.num_tokens);
  for (const LevelQuality& level : calibration.levels) {
    writer.Write<float>(level.bits_per_element);
    writer.Write<float>(level.mean_error);
    writer.Write<float>(level.max_error);
    writer.Write<float>(level.predicted_kl);
  }
  for (size_t layer = 0; layer < calibration.tables.size(); ++layer) {
    WriteTables(calibration.tables[layer], layer == 0, writer);
  }
  for (const GroupCalibration& group : calibration.groups) {
    for (const auto& classes : group.classes) writer.WriteBytes(std::as_bytes(std::span(classes)));
    writer.WriteBytes(std::as_bytes(std::span(group.means)));
    for (size_t i = PaddingAt(writer.size()); i > 0; --i) writer.Write<uint8_t>(0);
    writer.WriteBytes(std::as_bytes(std::span(group.basis)));
  }
}

absl::Status ReadCalibration(int num_levels, const std::vector<size_t>& channels,
                             ByteReader& reader, Calibration& calibration,
                             std::vector<size_t>& basis_offsets) {
  RETURN_IF_ERROR(reader.Read("num_contexts", calibration.num_contexts));
  RETURN_IF_ERROR(reader.Read("num_tokens", calibration.num_tokens));
  if (reader.remaining() < num_levels * kLevelBytes) {
    return absl::DataLossError("profile ends within its levels");
  }
  for (int l = 0; l < num_levels; ++l) {
    LevelQuality& level = calibration.levels.emplace_back();
    const std::string name = absl::StrCat("levels[", l, "]");
    RETURN_IF_ERROR(reader.Read(name + ".bits_per_element", level.bits_per_element));
    RETURN_IF_ERROR(reader.Read(name + ".mean_error", level.mean_error));
    RETURN_IF_ERROR(reader.Read(name + ".max_error", level.max_error));
    RETURN_IF_ERROR(reader.Read(name + ".predicted_kl", level.predicted_kl));
  }
  for (int layer = 0; layer < num_levels; ++layer) {
    RETURN_IF_ERROR(ReadTables(layer, reader, calibration.tables.emplace_back()));
  }
  for (size_t g = 0; g < channels.size(); ++g) {
    const std::string name = absl::StrCat("groups[", g, "]");
    if (channels[g] > kMaxTransformChannels) {
      return absl::DataLossError(absl::StrCat(name, " has ", channels[g], " coded channels"));
    }
    RETURN_IF_ERROR(ReadGroup(name, num_levels, channels[g], reader,
                              calibration.groups.emplace_back(), basis_offsets.emplace_back()));
  }
  return ValidateCalibration(calibration, num_levels, channels);
}

}  // namespace sluice::codec
