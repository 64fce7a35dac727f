#include "codec/byte_block.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/frequencies.h"
#include "codec/rans.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr size_t kSymbols = 256;
constexpr int kZstdLevel = 3;
constexpr int kModeShift = 24;  // the header is payload bytes | mode << 24
static_assert(kMaxByteBlockBytes < 1u << kModeShift);

using Frequencies = std::array<uint16_t, kSymbols>;

void WriteFrequencies(std::span<const uint16_t> freqs, ByteWriter& writer) {
  std::array<uint8_t, kSymbols / 8> used = {};
  for (size_t i = 0; i < kSymbols; ++i) used[i / 8] |= (freqs[i] != 0) << (i % 8);
  writer.WriteBytes(std::as_bytes(std::span(used)));
  for (uint16_t freq : freqs) {
    if (freq == 0) continue;
    const uint32_t value = freq - 1u;
    if (value < 128) {
      writer.Write<uint8_t>(value);
    } else {
      writer.Write<uint8_t>(128 | (value & 127));
      writer.Write<uint8_t>(value >> 7);
    }
  }
}

absl::Status ReadFrequencies(ByteReader& reader, Frequencies& freqs) {
  std::array<uint8_t, kSymbols / 8> used = {};
  RETURN_IF_ERROR(reader.ReadInto("rANS symbol map", std::as_writable_bytes(std::span(used))));
  uint32_t sum = 0;
  for (size_t i = 0; i < kSymbols; ++i) {
    freqs[i] = 0;
    if ((used[i / 8] >> (i % 8) & 1) == 0) continue;
    uint8_t low = 0;
    uint8_t high = 0;
    RETURN_IF_ERROR(reader.Read("rANS frequency", low));
    if (low >= 128) {
      RETURN_IF_ERROR(reader.ReadInRange<uint8_t>("high part of a rANS frequency", 1,
                                                  (kProbScale - 1) >> 7, high));
    }
    freqs[i] = static_cast<uint16_t>((low & 127) + (high << 7) + 1);
    sum += freqs[i];
  }
  if (sum == kProbScale) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("rANS frequencies sum to ", sum, ", not ", kProbScale));
}

std::string EncodeRans(std::span<const std::byte> bytes) {
  std::array<uint64_t, kSymbols> counts = {};
  for (std::byte byte : bytes) ++counts[static_cast<uint8_t>(byte)];
  const std::vector<uint16_t> freqs = ScaleToFrequencies(counts);
  std::array<uint32_t, kSymbols> starts = {};
  for (size_t i = 1; i < kSymbols; ++i) starts[i] = starts[i - 1] + freqs[i - 1];

  LaneEncoder lanes;
  for (size_t i = bytes.size(); i > 0; --i) {
    const uint8_t symbol = static_cast<uint8_t>(bytes[i - 1]);
    lanes.Put((i - 1) % kLanes, starts[symbol], freqs[symbol]);
  }
  ByteWriter writer;
  WriteFrequencies(freqs, writer);
  lanes.Finish(writer);
  return std::move(writer).Take();
}

// A slot of the decoder's table: start | (freq - 1) << 12 | symbol << 24.
using SlotTable = std::array<uint32_t, kProbScale>;
constexpr uint32_t SlotStart(uint32_t entry) { return entry & (kProbScale - 1); }
constexpr uint32_t SlotFreq(uint32_t entry) { return (entry >> 12 & (kProbScale - 1)) + 1; }
constexpr std::byte SlotSymbol(uint32_t entry) { return static_cast<std::byte>(entry >> 24); }

// REQUIRES: the frequencies sum to kProbScale.
void FillSlots(const Frequencies& freqs, SlotTable& slots) {
  uint32_t start = 0;
  for (uint32_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (freqs[symbol] == 0) continue;
    const uint32_t entry = start | (freqs[symbol] - 1u) << 12 | symbol << 24;
    std::fill_n(slots.begin() + start, freqs[symbol], entry);
    start += freqs[symbol];
  }
}

absl::Status DecodeRans(std::span<const std::byte> payload, std::span<std::byte> out) {
  ByteReader reader(payload);
  Frequencies freqs;
  RETURN_IF_ERROR(ReadFrequencies(reader, freqs));
  SlotTable slots;
  FillSlots(freqs, slots);
  LaneDecoder lanes;
  RETURN_IF_ERROR(lanes.Init(payload.subspan(reader.position())));
  size_t i = 0;
  for (; out.size() - i >= kLanes && lanes.StepIsSafe(); i += kLanes) {
    std::byte* step = out.data() + i;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t entry = slots[lanes.Slot(lane)];
      step[lane] = SlotSymbol(entry);
      lanes.AdvanceUnchecked(lane, SlotStart(entry), SlotFreq(entry));
    }
  }
  for (; i < out.size(); ++i) {
    const size_t lane = i % kLanes;
    const uint32_t entry = slots[lanes.Slot(lane)];
    out[i] = SlotSymbol(entry);
    lanes.Advance(lane, SlotStart(entry), SlotFreq(entry));
  }
  return lanes.Finish();
}

// Empty if zstd fails, which happens only without memory.
std::string EncodeZstd(std::span<const std::byte> bytes) {
  std::string coded(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size =
      ZSTD_compress(coded.data(), coded.size(), bytes.data(), bytes.size(), kZstdLevel);
  coded.resize(ZSTD_isError(size) ? 0 : size);
  return coded;
}

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

absl::Status DecodeZstd(std::span<const std::byte> payload, std::span<std::byte> out) {
  // Making one costs more than most blocks, which are small.
  static thread_local std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  if (context == nullptr) return absl::ResourceExhaustedError("zstd: out of memory");
  const size_t size =
      ZSTD_decompressDCtx(context.get(), out.data(), out.size(), payload.data(), payload.size());
  if (ZSTD_isError(size)) {
    return absl::DataLossError(absl::StrCat("zstd: ", ZSTD_getErrorName(size)));
  }
  if (size == out.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("zstd frame has ", size, " bytes, not ", out.size()));
}

absl::Status DecodePayload(ByteBlockMode mode, std::span<const std::byte> payload,
                           std::span<std::byte> out) {
  switch (mode) {
    case ByteBlockMode::kRaw:
      if (payload.size() != out.size()) {
        return absl::DataLossError(
            absl::StrCat("raw payload has ", payload.size(), " bytes, not ", out.size()));
      }
      std::copy(payload.begin(), payload.end(), out.begin());
      return absl::OkStatus();
    case ByteBlockMode::kConstant:
      if (payload.size() != 1) return absl::DataLossError("constant payload is not one byte");
      std::fill(out.begin(), out.end(), payload[0]);
      return absl::OkStatus();
    case ByteBlockMode::kRans:
      return DecodeRans(payload, out);
    case ByteBlockMode::kZstd:
      return DecodeZstd(payload, out);
  }
  return absl::DataLossError(absl::StrCat("mode ", static_cast<int>(mode), " is not known"));
}

void WriteBlock(ByteBlockMode mode, std::span<const std::byte> payload, ByteWriter& writer) {
  writer.Write<uint32_t>(payload.size() | static_cast<uint32_t>(mode) << kModeShift);
  writer.WriteBytes(payload);
}

}  // namespace

void EncodeByteBlock(std::span<const std::byte> bytes, ByteWriter& writer) {
  if (bytes.size() > 1 &&
      std::all_of(bytes.begin(), bytes.end(), [&](std::byte byte) { return byte == bytes[0]; })) {
    return WriteBlock(ByteBlockMode::kConstant, bytes.first(1), writer);
  }
  // From the fastest to the slowest to decode: a later mode must be smaller to win.
  ByteBlockMode mode = ByteBlockMode::kRaw;
  std::span<const std::byte> best = bytes;
  const std::string zstd = EncodeZstd(bytes);
  if (!zstd.empty() && zstd.size() < best.size()) {
    mode = ByteBlockMode::kZstd;
    best = AsBytes(zstd);
  }
  std::string rans;
  if (best.size() > kRansStateBytes + kSymbols / 8) rans = EncodeRans(bytes);
  if (!rans.empty() && rans.size() < best.size()) {
    mode = ByteBlockMode::kRans;
    best = AsBytes(rans);
  }
  WriteBlock(mode, best, writer);
}

absl::Status DecodeByteBlock(std::string_view field, ByteReader& reader, std::span<std::byte> out) {
  uint32_t header = 0;
  std::span<const std::byte> payload;
  RETURN_IF_ERROR(reader.Read(field, header));
  RETURN_IF_ERROR(reader.ReadBytes(field, header & ((1u << kModeShift) - 1), payload));
  const absl::Status status =
      DecodePayload(static_cast<ByteBlockMode>(header >> kModeShift), payload, out);
  if (status.ok()) return status;
  return absl::DataLossError(absl::StrCat(std::string(field), ": ", status.message()));
}

}  // namespace sluice::codec
