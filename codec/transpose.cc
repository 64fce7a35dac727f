#include "codec/transpose.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "codec/column_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/transpose.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sluice::codec::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Rows that are turned at a time: a cache line of every token. Tokens at a time: the tile, 16 KiB,
// stays in the first cache.
constexpr size_t kTileRows = 32;
constexpr size_t kTileTokens = 256;

// Converts the leading bits of `count` integers to bf16, or the rest. Writes whole vectors: up to
// kTileTokens.
template <bool kLow>
void ToBf16(const int16_t* values, size_t count, uint16_t* out) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<int16_t, decltype(df)> d16;
  const hn::Rebind<uint16_t, decltype(df)> du16;
  const size_t lanes = hn::Lanes(df);
  const auto convert = [&](const int16_t* from, uint16_t* to) HWY_ATTR {
    const auto value = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d16, from)));
    auto bits = hn::BitCast(du, value);
    if constexpr (kLow) {
      const auto high = hn::And(bits, hn::Set(du, 0xffff0000));
      bits = hn::BitCast(du, hn::Sub(value, hn::BitCast(df, high)));
    }
    hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, hn::ShiftRight<16>(bits))), du16, to);
  };
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) convert(values + i, out + i);
  if (i == count) return;
  int16_t tail[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(tail, values + i, (count - i) * sizeof(int16_t));
  convert(tail, out + i);
}

#if HWY_TARGET != HWY_SCALAR

using Bf16x8 = hn::FixedTag<uint16_t, 8>;

// out[t * pitch + r] = tile[r * kTilePitch + t] for r < 8 and t < tokens <= 8.
template <size_t kTilePitch>
void Turn8x8(const uint16_t* HWY_RESTRICT tile, size_t tokens, size_t pitch,
             uint16_t* HWY_RESTRICT out) {
  const Bf16x8 d;
  const hn::Repartition<uint32_t, Bf16x8> d32;
  const hn::Repartition<uint64_t, Bf16x8> d64;
  using V = hn::Vec<Bf16x8>;
  using V32 = hn::Vec<decltype(d32)>;
  V rows[8];
  for (size_t r = 0; r < 8; ++r) rows[r] = hn::LoadU(d, tile + r * kTilePitch);
  V32 pairs[8];  // [row pair][half of the tokens]: two rows of a token in 32 bits
  for (size_t r = 0; r < 4; ++r) {
    pairs[2 * r] = hn::BitCast(d32, hn::InterleaveLower(d, rows[2 * r], rows[2 * r + 1]));
    pairs[2 * r + 1] = hn::BitCast(d32, hn::InterleaveUpper(d, rows[2 * r], rows[2 * r + 1]));
  }
  V columns[8];
  for (size_t half = 0; half < 2; ++half) {
    const auto a = hn::BitCast(d64, hn::InterleaveLower(d32, pairs[half], pairs[2 + half]));
    const auto b = hn::BitCast(d64, hn::InterleaveUpper(d32, pairs[half], pairs[2 + half]));
    const auto c = hn::BitCast(d64, hn::InterleaveLower(d32, pairs[4 + half], pairs[6 + half]));
    const auto e = hn::BitCast(d64, hn::InterleaveUpper(d32, pairs[4 + half], pairs[6 + half]));
    columns[4 * half] = hn::BitCast(d, hn::InterleaveLower(d64, a, c));
    columns[4 * half + 1] = hn::BitCast(d, hn::InterleaveUpper(d64, a, c));
    columns[4 * half + 2] = hn::BitCast(d, hn::InterleaveLower(d64, b, e));
    columns[4 * half + 3] = hn::BitCast(d, hn::InterleaveUpper(d64, b, e));
  }
  for (size_t t = 0; t < tokens; ++t) hn::StoreU(columns[t], d, out + t * pitch);
}

#endif  // HWY_TARGET != HWY_SCALAR

// out[t * pitch + r] = tile[r * kTileTokens + t] for r < rows <= kTileRows. Rows beyond are zero in
// the tile.
void TurnTile(const uint16_t* tile, size_t rows, size_t tokens, size_t pitch, uint16_t* out) {
  for (size_t t = 0; t < tokens; t += 8) {
    size_t r = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; r + 8 <= rows; r += 8) {
      Turn8x8<kTileTokens>(tile + r * kTileTokens + t, std::min<size_t>(8, tokens - t), pitch,
                           out + t * pitch + r);
    }
#endif
    for (; r < rows; ++r) {
      for (size_t i = t; i < std::min(t + 8, tokens); ++i) {
        out[i * pitch + r] = tile[r * kTileTokens + i];
      }
    }
  }
}

template <bool kLow>
void Transpose(RowsView<const int16_t> values, size_t pitch, uint16_t* out) {
  HWY_ALIGN uint16_t tile[kTileRows * kTileTokens];
  for (size_t row = 0; row < pitch; row += kTileRows) {
    const size_t rows = std::min(kTileRows, pitch - row);
    for (size_t token = 0; token < values.num_tokens; token += kTileTokens) {
      const size_t tokens = std::min(kTileTokens, values.num_tokens - token);
      for (size_t r = 0; r < rows; ++r) {
        uint16_t* const tile_row = tile + r * kTileTokens;
        if (row + r < values.num_rows) {
          ToBf16<kLow>(values.data + (row + r) * values.pitch + token, tokens, tile_row);
        } else {
          std::fill_n(tile_row, tokens, uint16_t{0});
        }
      }
      TurnTile(tile, rows, tokens, pitch, out + token * pitch + row);
    }
  }
}

void TransposeToBf16(RowsView<const int16_t> values, size_t pitch, uint16_t* out) {
  Transpose<false>(values, pitch, out);
}

void TransposeLowToBf16(RowsView<const int16_t> values, size_t pitch, uint16_t* out) {
  Transpose<true>(values, pitch, out);
}

// Tokens of a block that are rounded at a time, before they are turned.
constexpr size_t kRoundTokens = 64;

// Rounds `count` floats, whole vectors, and returns the largest magnitude; NaN is above all others.
template <class Tag, class Vector>
Vector RoundVectors(Tag df, const float* from, size_t count, Vector largest, int16_t* to) {
  const hn::RebindToSigned<Tag> di;
  const hn::Rebind<int16_t, Tag> d16;
  for (size_t i = 0; i < count; i += hn::Lanes(df)) {
    const auto value = hn::LoadU(df, from + i);
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(value)));
    hn::StoreU(hn::DemoteTo(d16, hn::NearestInt(value)), d16, to + i);
  }
  return largest;
}

// Returns the bits of the largest magnitude.
int32_t RoundBlock(const float* block, RowsView<int16_t> rows) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  HWY_ALIGN int16_t tile[kRoundTokens * kBlockColumns];
  [[maybe_unused]] auto* const turned = reinterpret_cast<uint16_t*>(rows.data);
  auto largest = hn::Zero(di);
  for (size_t token = 0; token < rows.num_tokens; token += kRoundTokens) {
    const size_t tokens = std::min(kRoundTokens, rows.num_tokens - token);
    largest =
        RoundVectors(df, block + token * kBlockColumns, tokens * kBlockColumns, largest, tile);
    size_t t = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; t + 8 <= tokens; t += 8) {
      for (size_t r = 0; r < rows.num_rows; r += 8) {
        Turn8x8<kBlockColumns>(reinterpret_cast<const uint16_t*>(tile) + t * kBlockColumns + r,
                               std::min<size_t>(8, rows.num_rows - r), rows.pitch,
                               turned + r * rows.pitch + token + t);
      }
    }
#endif
    for (; t < tokens; ++t) {
      for (size_t r = 0; r < rows.num_rows; ++r) {
        rows.data[r * rows.pitch + token + t] = tile[t * kBlockColumns + r];
      }
    }
  }
  return hn::GetLane(hn::MaxOfLanes(di, largest));
}

}  // namespace
}  // namespace sluice::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::codec {

HWY_EXPORT(TransposeToBf16);
HWY_EXPORT(TransposeLowToBf16);
HWY_EXPORT(RoundBlock);

void TransposeToBf16(RowsView<const int16_t> values, size_t pitch, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(TransposeToBf16)(values, pitch, out);
}

void TransposeLowToBf16(RowsView<const int16_t> values, size_t pitch, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(TransposeLowToBf16)(values, pitch, out);
}

bool RoundBlock(const float* block, int16_t limit, RowsView<int16_t> rows) {
  return HWY_DYNAMIC_DISPATCH(RoundBlock)(block, rows) <=
         std::bit_cast<int32_t>(static_cast<float>(limit));
}

void TransposeToFloat(RowsView<const int16_t> values, size_t pitch, float* out) {
  constexpr size_t kTileTokens = 16;
  for (size_t tile = 0; tile < values.num_tokens; tile += kTileTokens) {
    const size_t end = std::min(tile + kTileTokens, values.num_tokens);
    for (size_t row = 0; row < pitch; ++row) {
      for (size_t t = tile; t < end; ++t) {
        out[t * pitch + row] =
            row < values.num_rows ? static_cast<float>(values.data[row * values.pitch + t]) : 0.0f;
      }
    }
  }
}

size_t RowsOfLargeValues(std::span<const int16_t> values, size_t num_tokens) {
  if (num_tokens == 0) return 0;
  for (size_t row = values.size() / num_tokens; row > 0; --row) {
    // Free of branches, so that the compiler can vectorise it.
    int16_t smallest = 0;
    int16_t largest = 0;
    for (int16_t value : values.subspan((row - 1) * num_tokens, num_tokens)) {
      smallest = std::min(smallest, value);
      largest = std::max(largest, value);
    }
    if (largest > kMaxBf16Integer || smallest < -kMaxBf16Integer) return row;
  }
  return 0;
}

}  // namespace sluice::codec
#endif  // HWY_ONCE
