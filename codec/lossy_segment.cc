#include "codec/lossy_segment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/byte_block.h"
#include "codec/class_prediction.h"
#include "codec/exact_planes.h"
#include "codec/quantize.h"
#include "codec/row_coding.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

enum PlaneMode : uint8_t { kCoded = 0, kExact = 1 };

constexpr size_t kMaxVarintBytes = 5;
// Smallest step: its multiples are all normal floats.
constexpr float kMinStep = 0x1p-100f;
constexpr float kMaxStep = 0x1p100f;

// A run of bytes of any length: a u32 length, then byte blocks.
void WriteRun(std::span<const std::byte> bytes, ByteWriter& writer) {
  writer.Write<uint32_t>(bytes.size());
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), kMaxByteBlockBytes);
    EncodeByteBlock(bytes.first(size), writer);
    bytes = bytes.subspan(size);
  }
}

// Grows `bytes` block by block, so that a length needs the blocks to back it.
absl::Status ReadRun(std::string_view field, size_t max_bytes, ByteReader& reader,
                     std::vector<std::byte>& bytes) {
  uint32_t size = 0;
  const auto limit =
      static_cast<uint32_t>(std::min<size_t>(max_bytes, std::numeric_limits<uint32_t>::max()));
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>(field, 0, limit, size));
  while (bytes.size() < size) {
    const size_t begin = bytes.size();
    bytes.resize(begin + std::min(size - begin, kMaxByteBlockBytes));
    RETURN_IF_ERROR(DecodeByteBlock(field, reader, std::span(bytes).subspan(begin)));
  }
  return absl::OkStatus();
}

// Signed integers as bytes: 7 bits at a time, low first, sign in the lowest bit.
void PutVarint(int32_t value, std::vector<std::byte>& bytes) {
  uint32_t rest = static_cast<uint32_t>(value) << 1 ^ static_cast<uint32_t>(value >> 31);
  for (; rest >= 0x80; rest >>= 7) bytes.push_back(static_cast<std::byte>(rest | 0x80));
  bytes.push_back(static_cast<std::byte>(rest));
}

class VarintReader {
 public:
  VarintReader(std::string field, std::span<const std::byte> bytes)
      : field_(std::move(field)), bytes_(bytes) {}

  // An integer of at most `limit` in magnitude.
  absl::Status Read(int32_t limit, int32_t& value) {
    uint64_t raw = 0;
    for (size_t i = 0; i < kMaxVarintBytes; ++i) {
      if (next_ == bytes_.size()) return absl::DataLossError(absl::StrCat(field_, " are too few"));
      const auto byte = static_cast<uint64_t>(bytes_[next_++]);
      raw |= (byte & 0x7f) << (7 * i);
      if (byte < 0x80) {
        const auto magnitude = static_cast<int64_t>(raw >> 1);
        const int64_t decoded = (raw & 1) != 0 ? -magnitude - 1 : magnitude;
        if (std::abs(decoded) > limit) break;
        value = static_cast<int32_t>(decoded);
        return absl::OkStatus();
      }
    }
    return absl::DataLossError(absl::StrCat(field_, " have a number that is out of range"));
  }

  absl::Status ExpectEnd() const {
    if (next_ == bytes_.size()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(field_, " are too many"));
  }

 private:
  std::string field_;
  std::span<const std::byte> bytes_;
  size_t next_ = 0;
};

absl::Status ReadModes(const SegmentContext& context, ByteReader& reader, GroupCode& code,
                       size_t& num_rows) {
  num_rows = 0;
  code.planes.assign(context.spec().num_planes, {});
  for (size_t i = 0; i < code.planes.size(); ++i) {
    PlaneCode& plane = code.planes[i];
    const std::string name = absl::StrCat("planes[", i, "]");
    uint8_t mode = 0;
    RETURN_IF_ERROR(reader.ReadInRange<uint8_t>(name + ".mode", kCoded, kExact, mode));
    plane.exact = mode == kExact;
    if (plane.exact) continue;
    if (!context.profile->is_coded(context.spec().first_plane + i)) {
      return absl::DataLossError(name + ".mode: the profile keeps this plane exact");
    }
    if (!context.is_calibrated()) {
      RETURN_IF_ERROR(reader.Read(name + ".step", plane.step));
      if (!IsCodableStep(plane.step)) return absl::DataLossError(name + ".step is out of range");
    }
    plane.first_row = num_rows;
    num_rows += context.plane(i).channels();
  }
  // A transform needs all of its channels.
  if (context.is_calibrated() && num_rows != 0 &&
      num_rows != context.profile->coded_channels(context.group)) {
    return absl::DataLossError("some, not all, of the group's coded planes are exact");
  }
  return absl::OkStatus();
}

absl::Status ReadExactParts(const SegmentContext& context, ByteReader& reader,
                            std::span<const std::span<std::byte>> planes, GroupCode& code) {
  for (size_t i = 0; i < code.planes.size(); ++i) {
    const std::string name = absl::StrCat("planes[", i, "]");
    PlaneCode& plane = code.planes[i];
    if (plane.exact) {
      RETURN_IF_ERROR(DecodeExactPlane(name + ".exact", context.plane(i), context.num_tokens,
                                       reader, planes[i]));
    } else if (context.num_sinks() > 0) {
      plane.sinks.resize(context.num_sinks() * context.plane(i).bytes_per_token());
      RETURN_IF_ERROR(DecodeExactPlane(name + ".sinks", context.plane(i), context.num_sinks(),
                                       reader, std::as_writable_bytes(std::span(plane.sinks))));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadMeans(ByteReader& reader, std::vector<int32_t>& means) {
  std::vector<std::byte> bytes;
  RETURN_IF_ERROR(ReadRun("means", means.size() * kMaxVarintBytes, reader, bytes));
  VarintReader varints("means", bytes);
  for (int32_t& mean : means) RETURN_IF_ERROR(varints.Read(kMaxMean, mean));
  return varints.ExpectEnd();
}

// Replaces the values that DecodeBaseRows left open.
absl::Status FillEscapes(std::span<const std::byte> bytes, int32_t limit,
                         std::span<int16_t> values) {
  VarintReader varints("escapes", bytes);
  for (size_t i = FindEscape(values, 0); i < values.size(); i = FindEscape(values, i + 1)) {
    int32_t value = 0;
    RETURN_IF_ERROR(varints.Read(limit, value));
    values[i] = static_cast<int16_t>(value);
  }
  return varints.ExpectEnd();
}

// Largest base value whose refinements all fit 16 bits.
int32_t LargestBaseValue(const Profile& profile) {
  int32_t ratio = 1;
  for (int level = 1; level < profile.num_levels(); ++level) ratio *= kStepRatio;
  return (std::numeric_limits<int16_t>::max() - ratio / 2) / ratio;
}

// Classes as differences to their predictions, modulo 256; without predictions, to the row before.
uint8_t PredictionOf(std::span<const uint8_t> predictions, std::span<const uint8_t> classes,
                     size_t row) {
  if (!predictions.empty()) return predictions[row];
  return row == 0 ? 0 : classes[row - 1];
}

void WriteClasses(std::span<const uint8_t> classes, std::span<const uint8_t> predictions,
                  ByteWriter& writer) {
  if (classes.empty()) return;
  std::vector<std::byte> bytes(classes.size());
  for (size_t row = 0; row < classes.size(); ++row) {
    bytes[row] = static_cast<std::byte>(classes[row] - PredictionOf(predictions, classes, row));
  }
  EncodeByteBlock(bytes, writer);
}

absl::Status ReadClasses(size_t num_classes, std::span<const uint8_t> predictions,
                         ByteReader& reader, std::span<uint8_t> classes) {
  if (classes.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(DecodeByteBlock("classes", reader, std::as_writable_bytes(classes)));
  for (size_t row = 0; row < classes.size(); ++row) {
    classes[row] += PredictionOf(predictions, classes, row);
    if (classes[row] > num_classes) {
      return absl::DataLossError(
          absl::StrCat("classes[", row, "] is ", classes[row], ", not in 0..", num_classes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t SegmentContext::num_sinks() const {
  return start_token == 0 ? std::min(profile->sink_tokens(), num_tokens) : 0;
}

bool IsCodableStep(double step) { return step >= kMinStep && step <= kMaxStep; }

std::string WriteBaseSegment(const SegmentContext& context, const GroupCode& code,
                             std::span<const std::span<const std::byte>> planes) {
  ByteWriter writer;
  writer.Write<uint8_t>(0);
  for (const PlaneCode& plane : code.planes) {
    writer.Write<uint8_t>(plane.exact ? kExact : kCoded);
    if (!plane.exact && !context.is_calibrated()) writer.Write<float>(plane.step);
  }
  for (size_t i = 0; i < code.planes.size(); ++i) {
    if (code.planes[i].exact) {
      EncodeExactPlane(context.plane(i), context.num_tokens, planes[i], writer);
    } else if (context.num_sinks() > 0) {
      EncodeExactPlane(context.plane(i), context.num_sinks(), AsBytes(code.planes[i].sinks),
                       writer);
    }
  }
  if (!context.is_calibrated()) {
    std::vector<std::byte> means;
    for (int32_t mean : code.means) PutVarint(mean, means);
    WriteRun(means, writer);
  }
  WriteClasses(code.classes, PredictBaseClasses(*context.profile, context.group), writer);
  std::vector<std::byte> escapes;
  const std::span<const int16_t> values = code.values;
  for (size_t i = FindEscape(values, 0); i < values.size(); i = FindEscape(values, i + 1)) {
    PutVarint(values[i], escapes);
  }
  WriteRun(escapes, writer);
  EncodeBaseRows(context.profile->tables(0), code.classes, context.num_tokens, code.values, writer);
  return std::move(writer).Take();
}

absl::Status ReadBaseSegment(const SegmentContext& context, std::span<const std::byte> segment,
                             std::span<const std::span<std::byte>> planes, GroupCode& code) {
  const ClassTables& tables = context.profile->tables(0);
  ByteReader reader(segment);
  uint8_t layer = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint8_t>("layer of the segment", 0, 0, layer));
  size_t num_rows = 0;
  RETURN_IF_ERROR(ReadModes(context, reader, code, num_rows));
  RETURN_IF_ERROR(ReadExactParts(context, reader, planes, code));
  code.layer = 0;
  if (!context.is_calibrated()) {
    code.means.resize(num_rows);
    RETURN_IF_ERROR(ReadMeans(reader, code.means));
  }
  code.classes.resize(num_rows);
  RETURN_IF_ERROR(ReadClasses(tables.base.size(),
                              PredictBaseClasses(*context.profile, context.group), reader,
                              code.classes));
  std::vector<std::byte> escapes;
  const size_t num_values = num_rows * context.num_tokens;
  RETURN_IF_ERROR(ReadRun("escapes", num_values * kMaxVarintBytes, reader, escapes));
  code.values.resize(num_values);
  RETURN_IF_ERROR(DecodeBaseRows(tables, code.classes, context.num_tokens, reader, code.values));
  RETURN_IF_ERROR(reader.ExpectEnd("base segment"));
  return FillEscapes(escapes, LargestBaseValue(*context.profile), code.values);
}

std::string WriteRefinementSegment(const SegmentContext& context,
                                   std::span<const uint8_t> predictions, const GroupCode& code) {
  ByteWriter writer;
  writer.Write<uint8_t>(code.layer);
  WriteClasses(code.classes, predictions, writer);
  EncodeRefinementRows(context.profile->tables(code.layer), code.classes, context.num_tokens,
                       code.values, writer);
  return std::move(writer).Take();
}

absl::Status ReadRefinementSegment(const SegmentContext& context,
                                   std::span<const std::byte> segment, GroupCode& code) {
  ByteReader reader(segment);
  const auto expected = static_cast<uint8_t>(code.layer + 1);
  uint8_t layer = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint8_t>("layer of the segment", expected, expected, layer));
  const ClassTables& tables = context.profile->tables(layer);
  const std::vector<uint8_t> predictions =
      PredictRefinementClasses(*context.profile, context.group, layer, code.classes);
  RETURN_IF_ERROR(ReadClasses(tables.refinement.size(), predictions, reader, code.classes));
  RETURN_IF_ERROR(
      DecodeRefinementRows(tables, code.classes, context.num_tokens, reader, code.values));
  code.layer = layer;
  return reader.ExpectEnd("refinement segment");
}

std::string CopySinks(const SegmentContext& context, size_t plane_index,
                      std::span<const std::byte> plane) {
  const PlaneSpec& spec = context.plane(plane_index);
  const size_t head_bytes = spec.head_dim * ElementBytes(spec.element_type);
  std::string sinks;
  for (size_t head = 0; head < spec.num_heads; ++head) {
    sinks += AsText(
        plane.subspan(head * context.num_tokens * head_bytes, context.num_sinks() * head_bytes));
  }
  return sinks;
}

}  // namespace sluice::codec
