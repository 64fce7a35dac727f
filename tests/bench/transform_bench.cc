// Speed of the calibrated transform on one core: the matrix products, and the passes between planes
// and columns, beside memcpy in the same run.
//
//   transform_bench [--benchmark_filter=...]
//
// Products are in multiply-adds per second; passes in elements per second. The sizes are those of
// a group of 5 model layers of 3 heads of 64, 256 tokens, unless an argument says otherwise.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "codec/elements.h"
#include "codec/matrix.h"
#include "codec/rotary.h"
#include "codec/token_planes.h"
#include "codec/transpose.h"

namespace sluice::codec {
namespace {

constexpr size_t kColumns = 1920;

std::vector<uint16_t> RandomHalves(size_t count) {
  std::mt19937 random(1);
  std::vector<uint16_t> halves(count);
  for (uint16_t& half : halves) half = FloatToBf16(static_cast<float>(random() % 2001) / 1000 - 1);
  return halves;
}

const PackedMatrix& Matrix() {
  static const PackedMatrix* const matrix = new PackedMatrix(*PackedMatrix::Pack(
      RandomHalves(kColumns * kColumns), MatrixLayout::kInputsByOutputs, kColumns, kColumns));
  return *matrix;
}

void SetProducts(benchmark::State& state, size_t tokens, size_t rows) {
  state.counters["MAC"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(tokens * rows * kColumns),
      benchmark::Counter::kIsRate);
}

// Arguments: tokens, rows, rows with large values.
void BM_Synthesize(benchmark::State& state) {
  const auto tokens = static_cast<size_t>(state.range(0));
  const auto rows = static_cast<size_t>(state.range(1));
  const auto large = static_cast<size_t>(state.range(2));
  std::mt19937 random(2);
  std::vector<int16_t> values(rows * tokens);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int16_t>(random() % 15) - 7;
    if (i < large * tokens) values[i] = static_cast<int16_t>(values[i] * 400);
  }
  std::vector<float> out(BlockedSize(tokens, kColumns));
  ProductScratch scratch;
  for (auto _ : state) {
    if (!Matrix().Synthesize(values, tokens, scratch, out).ok()) state.SkipWithError("failed");
  }
  SetProducts(state, tokens, rows);
}
BENCHMARK(BM_Synthesize)
    ->Args({256, 1920, 0})
    ->Args({256, 1536, 0})
    ->Args({256, 960, 0})
    ->Args({256, 480, 0})
    ->Args({256, 960, 50})
    ->Args({1, 960, 0})
    ->Args({32, 960, 0})
    ->Args({4096, 960, 0})
    ->Unit(benchmark::kMicrosecond);

void BM_Analyze(benchmark::State& state) {
  const auto tokens = static_cast<size_t>(state.range(0));
  const std::vector<uint16_t> y = RandomHalves(tokens * kColumns);
  std::vector<int16_t> out(tokens * kColumns);
  ProductScratch scratch;
  for (auto _ : state) {
    if (!Matrix().Analyze(y, tokens, 31000, scratch, out).ok()) state.SkipWithError("failed");
  }
  SetProducts(state, tokens, kColumns);
}
BENCHMARK(BM_Analyze)->Arg(256)->Arg(4096)->Unit(benchmark::kMicrosecond);

void BM_Transpose(benchmark::State& state) {
  const size_t tokens = 256;
  const std::vector<int16_t> values(tokens * kColumns, 3);
  std::vector<uint16_t> out(values.size());
  for (auto _ : state) {
    benchmark::DoNotOptimize(RowsOfLargeValues(values, tokens));
    TransposeToBf16({values.data(), tokens, kColumns, tokens}, kColumns, out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(values.size()));
}
BENCHMARK(BM_Transpose)->Unit(benchmark::kMicrosecond);

void BM_Pack(benchmark::State& state) {
  const std::vector<uint16_t> matrix = RandomHalves(kColumns * kColumns);
  const auto layout = static_cast<MatrixLayout>(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(PackedMatrix::Pack(matrix, layout, kColumns, kColumns));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(matrix.size()));
}
BENCHMARK(BM_Pack)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

// The planes of a group: keys turned, values not. All elements are about 1.
struct Group {
  static constexpr size_t kTokens = 256;
  static constexpr size_t kHeads = 3;

  Group(ElementType type, size_t head_dim, RotaryLayout layout)
      : rotation(MakeRotaryTable(10000, static_cast<uint32_t>(head_dim), layout), 1000, kTokens),
        means(kHeads * head_dim, 0.5f),
        x(BlockedSize(kTokens, kColumns), 1.5f),
        y(kTokens * kColumns) {
    for (size_t column = 0; column + kHeads * head_dim <= kColumns; column += kHeads * head_dim) {
      planes.push_back({type, kHeads, head_dim, column, 0.01f, means});
      bytes.emplace_back(kHeads * head_dim * kTokens * ElementBytes(type), std::byte{0x3f});
    }
  }

  const TokenRotation* RotationOf(size_t plane) const {
    return plane % 2 == 0 ? &rotation : nullptr;
  }
  int64_t elements() const { return static_cast<int64_t>(planes.size() * kTokens * means.size()); }

  TokenRotation rotation;
  std::vector<float> means;
  std::vector<float> x;
  std::vector<uint16_t> y;
  std::vector<TokenPlane> planes;
  std::vector<std::vector<std::byte>> bytes;
};

Group GroupOf(const benchmark::State& state) {
  return {static_cast<ElementType>(state.range(0)), static_cast<size_t>(state.range(1)),
          static_cast<RotaryLayout>(state.range(2))};
}

// Arguments: element type, head dimension, rotary layout.
void SetGroups(benchmark::internal::Benchmark* benchmark) {
  benchmark->Unit(benchmark::kMicrosecond);
  for (int type : {1, 2, 3}) benchmark->Args({type, 64, 1});
  benchmark->Args({1, 128, 1})->Args({1, 80, 1})->Args({1, 64, 2});
}

void BM_WriteTokens(benchmark::State& state) {
  Group group = GroupOf(state);
  for (auto _ : state) {
    for (size_t i = 0; i < group.planes.size(); ++i) {
      WriteTokens({group.planes[i], 3, group.RotationOf(i), Group::kTokens, group.x},
                  {0, Group::kTokens},
                  DensePlane(group.planes[i], Group::kTokens, group.bytes[i].data()));
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * group.elements());
}
BENCHMARK(BM_WriteTokens)->Apply(SetGroups);

void BM_ReadTokens(benchmark::State& state) {
  Group group = GroupOf(state);
  for (auto _ : state) {
    for (size_t i = 0; i < group.planes.size(); ++i) {
      const std::byte* const bytes = group.bytes[i].data();
      benchmark::DoNotOptimize(ReadTokens(group.planes[i], group.RotationOf(i), Group::kTokens, 0,
                                          DensePlane(group.planes[i], Group::kTokens, bytes),
                                          kColumns, group.y));
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * group.elements());
}
BENCHMARK(BM_ReadTokens)->Apply(SetGroups);

// As many elements of 4 bytes in and 2 bytes out as a pass has, as one copy of 3 bytes each.
void BM_Memcpy(benchmark::State& state) {
  const size_t bytes = Group::kTokens * kColumns * 3;
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(Group::kTokens * kColumns));
}
BENCHMARK(BM_Memcpy)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice::codec

BENCHMARK_MAIN();
