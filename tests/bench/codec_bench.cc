// Speed of the codec on one core, beside memcpy and zstd -1 of the same planes in the same run.
//
//   codec_bench [--benchmark_filter=...]
//
// bytes_per_second counts bytes of bf16 planes, whatever the size of the coded side. Chunks are
// synthetic, of 256 tokens. Built-in profile: 4 model layers of 8 heads of 128. Calibrated profile:
// 10 model layers of 3 heads of 64, 5 a group, with a spectrum like real models'.
#include <benchmark/benchmark.h>
#include <zstd.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "codec/bytes.h"
#include "codec/plane_runs.h"
#include "tests/codec/test_profiles.h"

namespace sluice::codec {
namespace {

constexpr int kZstdLevel = 1;

struct Sample {
  TestChunk chunk;
  std::string container;
  ChunkHeader header;
  std::string all_planes;
};

const Sample* MakeSample(TestChunk chunk) {
  auto* made = new Sample{std::move(chunk), {}, {}, {}};
  made->container = made->chunk.Encode({.lossy = true, .lossless = true}).container;
  made->header = *ParseChunkHeader(AsBytes(made->container));
  for (const std::string& plane : made->chunk.planes) made->all_planes += plane;
  return made;
}

enum Kind { kBuiltin = 0, kCalibrated = 1 };

const Sample& GetSample(int kind = kBuiltin) {
  constexpr ElementType kType = ElementType::kBf16;
  static const Sample* const builtin = MakeSample(
      MakeChunk(KeysAndValues(4, 8, 128, kType, MakeRotaryTable(500000, 128, RotaryLayout::kHalf)),
                1024, 256, 1, 2));
  static const Sample* const calibrated = MakeSample(MakeSpectralChunk(
      KeysAndValues(10, 3, 64, kType, MakeRotaryTable(100000, 64, RotaryLayout::kHalf)), 5, 1024,
      256, 1));
  return kind == kBuiltin ? *builtin : *calibrated;
}

void SetBytes(benchmark::State& state, uint64_t coded_bytes, int kind = kBuiltin) {
  const uint64_t plane_bytes = GetSample(kind).all_planes.size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * plane_bytes));
  state.counters["bits_per_element"] =
      8.0 * static_cast<double>(coded_bytes) / (static_cast<double>(plane_bytes) / 2);
}

void BM_Memcpy(benchmark::State& state) {
  const Sample& sample = GetSample();
  std::string copy(sample.all_planes.size(), '\0');
  for (auto _ : state) {
    std::memcpy(copy.data(), sample.all_planes.data(), copy.size());
    benchmark::ClobberMemory();
  }
  SetBytes(state, copy.size());
}
BENCHMARK(BM_Memcpy);

void BM_ZstdCompress(benchmark::State& state) {
  const Sample& sample = GetSample();
  std::string out(ZSTD_compressBound(sample.all_planes.size()), '\0');
  size_t size = 0;
  for (auto _ : state) {
    size = ZSTD_compress(out.data(), out.size(), sample.all_planes.data(), sample.all_planes.size(),
                         kZstdLevel);
  }
  SetBytes(state, size);
}
BENCHMARK(BM_ZstdCompress);

void BM_ZstdDecompress(benchmark::State& state) {
  const Sample& sample = GetSample();
  std::string coded(ZSTD_compressBound(sample.all_planes.size()), '\0');
  coded.resize(ZSTD_compress(coded.data(), coded.size(), sample.all_planes.data(),
                             sample.all_planes.size(), kZstdLevel));
  std::string out(sample.all_planes.size(), '\0');
  for (auto _ : state) ZSTD_decompress(out.data(), out.size(), coded.data(), coded.size());
  SetBytes(state, coded.size());
}
BENCHMARK(BM_ZstdDecompress);

// Argument: the kind of profile.
void BM_EncodeLossy(benchmark::State& state) {
  const auto kind = static_cast<int>(state.range(0));
  const Sample& sample = GetSample(kind);
  for (auto _ : state) benchmark::DoNotOptimize(sample.chunk.Encode());
  SetBytes(state, sample.header.LayerOffset(sample.chunk.profile.num_levels()), kind);
}
BENCHMARK(BM_EncodeLossy)->Arg(kBuiltin)->Arg(kCalibrated)->Unit(benchmark::kMillisecond);

void BM_EncodeLossless(benchmark::State& state) {
  const Sample& sample = GetSample();
  const EncodeOptions options = {.lossy = false, .lossless = true};
  for (auto _ : state) benchmark::DoNotOptimize(sample.chunk.Encode(options));
  SetBytes(state, sample.header.layers.back().bytes());
}
BENCHMARK(BM_EncodeLossless)->Unit(benchmark::kMillisecond);

// Arguments: the kind of profile, the level.
void BM_Decode(benchmark::State& state) {
  const auto kind = static_cast<int>(state.range(0));
  const Sample& sample = GetSample(kind);
  const auto level = static_cast<Level>(state.range(1));
  const Profile& profile = sample.chunk.profile;
  std::vector<std::string> planes = sample.chunk.planes;
  std::vector<std::byte*> begins;
  std::vector<PlaneRuns> runs;
  for (std::string& plane : planes) begins.push_back(reinterpret_cast<std::byte*>(plane.data()));
  for (size_t i = 0; i < planes.size(); ++i) {
    runs.push_back(DenseRuns(profile.geometry().planes[i], sample.header.num_tokens, begins[i]));
  }
  GroupDecoder decoder;
  for (auto _ : state) {
    for (size_t g = 0; g < profile.groups().size(); ++g) {
      const GroupSpec& group = profile.groups()[g];
      absl::Status status =
          decoder.Read(profile, sample.header, g, level,
                       SegmentsOf(sample.header, AsBytes(sample.container), g, level));
      if (status.ok()) {
        status = decoder.Write(std::span(runs).subspan(group.first_plane, group.num_planes));
      }
      if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
    }
  }
  const int layer = sample.header.LayerOfLevel(level);
  SetBytes(state,
           level == kLossless ? sample.header.layers[layer].bytes()
                              : sample.header.LayerOffset(layer + 1),
           kind);
}
BENCHMARK(BM_Decode)
    ->ArgsProduct({{kBuiltin, kCalibrated}, {0, 1, 2, kLossless}})
    ->Unit(benchmark::kMillisecond);

// Arguments: how blocks of 128 tokens are packed (rows, AMX keys, AMX values, transposed keys);
// into them or out of them.
void BM_CopyPacked(benchmark::State& state) {
  constexpr size_t kBlockTokens = 128;
  constexpr size_t kTokens = 2 * kBlockTokens;
  const PlaneSpec spec = Plane(PlaneKind::kKey, 0, 8, 128);
  const size_t row = spec.head_dim * 2;
  struct Packed {
    size_t token_stride;
    RunTiles tiles;
  };
  const Packed kinds[] = {{row, {}},
                          {4, {16, 16 * row, 2, 64, 2}},
                          {2, {2, 64, 16, 32 * kBlockTokens, 4}},
                          {2, {0, 0, 0, 0, 2 * kBlockTokens}}};
  std::vector<std::byte> values(kTokens * spec.bytes_per_token(), std::byte{1});
  std::vector<std::byte> pool(values.size(), std::byte{1});
  std::byte* const blocks[] = {pool.data(), pool.data() + pool.size() / 2};
  const Packed& kind = kinds[state.range(0)];
  const PlaneRuns runs = {blocks, kBlockTokens, kBlockTokens * row, kind.token_stride, kind.tiles};
  for (auto _ : state) {
    if (state.range(1) == 0) {
      CopyToRuns(spec, values, {0, kTokens}, runs);
    } else {
      CopyFromRuns(spec, runs, {0, kTokens}, values);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * values.size()));
}
BENCHMARK(BM_CopyPacked)->ArgsProduct({{0, 1, 2, 3}, {0, 1}})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice::codec

BENCHMARK_MAIN();
