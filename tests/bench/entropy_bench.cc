// Speed of entropy coding on one core, by set of vector instructions, beside the plain coder,
// memcpy, and zstd -1 of the same symbols as bytes, in one run.
//
//   entropy_bench [--benchmark_filter=...]
//
// items_per_second counts symbols. The group is synthetic: 1920 rows of 256 tokens, whose scales
// fall as those of a calibrated group do.
#include <benchmark/benchmark.h>
#include <zstd.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#define HWY_WANT_AVX3_DL
#include "codec/bytes.h"
#include "codec/class_choice.h"
#include "codec/row_coding.h"
#include "hwy/highway.h"

namespace sluice::codec {
namespace {

constexpr size_t kRows = 1920;
constexpr size_t kTokens = 256;
constexpr int kZstdLevel = 1;

struct Sample {
  std::vector<int16_t> base;
  std::vector<int16_t> fine;
  std::vector<uint8_t> base_classes = std::vector<uint8_t>(kRows);
  std::vector<uint8_t> predictions;
  std::vector<uint8_t> fine_classes = std::vector<uint8_t>(kRows);
  std::string base_bytes;
  std::string fine_bytes;
};

const Sample& GetSample() {
  static const Sample* const sample = [] {
    auto* made = new Sample;
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (size_t row = 0; row < kRows; ++row) {
      const double scale = 12 * std::pow(0.05, static_cast<double>(row) / kRows);
      for (size_t t = 0; t < kTokens; ++t) {
        made->fine.push_back(static_cast<int16_t>(std::lround(scale * normal(random))));
        made->base.push_back(ParentOf(made->fine.back()));
      }
    }
    const ClassTables& tables = BuiltinTables();
    ChooseBaseClasses(tables, kTokens, made->base, {}, made->base_classes);
    for (uint8_t c : made->base_classes) {
      made->predictions.push_back(tables.PredictRefinementClass(c));
    }
    ChooseRefinementClasses(tables, kTokens, made->fine, made->predictions, made->fine_classes);
    ByteWriter base;
    EncodeBaseRows(tables, made->base_classes, kTokens, made->base, base);
    made->base_bytes = std::move(base).Take();
    ByteWriter fine;
    EncodeRefinementRows(tables, made->fine_classes, kTokens, made->fine, fine);
    made->fine_bytes = std::move(fine).Take();
    return made;
  }();
  return *sample;
}

// The symbols of `values` as bytes: the base ones, or refinements.
std::string SymbolBytes(const std::vector<int16_t>& values, bool refinement) {
  std::string bytes;
  for (int16_t value : values) {
    bytes.push_back(static_cast<char>(refinement ? value - 3 * ParentOf(value) : value));
  }
  return bytes;
}

size_t SymbolsOf(const std::vector<uint8_t>& classes) {
  size_t rows = 0;
  for (uint8_t c : classes) rows += c != 0;
  return rows * kTokens;
}

void SetSymbols(benchmark::State& state, size_t symbols, size_t bytes) {
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * symbols));
  state.counters["bits"] = 8.0 * static_cast<double>(bytes) / static_cast<double>(symbols);
}

// Has the codec use the instructions of one target for a while.
class OnTarget {
 public:
  explicit OnTarget(int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnTarget() { hwy::SetSupportedTargetsForTest(0); }
};

void DecodeBase(benchmark::State& state, int64_t target) {
  const Sample& sample = GetSample();
  const OnTarget on_target(target);
  std::vector<int16_t> values(sample.base.size());
  for (auto _ : state) {
    ByteReader reader(AsBytes(sample.base_bytes));
    const auto status =
        DecodeBaseRows(BuiltinTables(), sample.base_classes, kTokens, reader, values);
    if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
  }
  SetSymbols(state, SymbolsOf(sample.base_classes), sample.base_bytes.size());
}

void DecodeRefinement(benchmark::State& state, int64_t target) {
  const Sample& sample = GetSample();
  const OnTarget on_target(target);
  std::vector<int16_t> values = sample.base;
  for (auto _ : state) {
    // Refined again and again, values would run out of 16 bits and out of context.
    state.PauseTiming();
    values = sample.base;
    state.ResumeTiming();
    ByteReader reader(AsBytes(sample.fine_bytes));
    const auto status =
        DecodeRefinementRows(BuiltinTables(), sample.fine_classes, kTokens, reader, values);
    if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
  }
  SetSymbols(state, SymbolsOf(sample.fine_classes), sample.fine_bytes.size());
}

void EncodeBase(benchmark::State& state, int64_t target) {
  const Sample& sample = GetSample();
  const OnTarget on_target(target);
  for (auto _ : state) {
    ByteWriter writer;
    EncodeBaseRows(BuiltinTables(), sample.base_classes, kTokens, sample.base, writer);
    benchmark::DoNotOptimize(writer);
  }
  SetSymbols(state, SymbolsOf(sample.base_classes), sample.base_bytes.size());
}

void EncodeRefinement(benchmark::State& state, int64_t target) {
  const Sample& sample = GetSample();
  const OnTarget on_target(target);
  for (auto _ : state) {
    ByteWriter writer;
    EncodeRefinementRows(BuiltinTables(), sample.fine_classes, kTokens, sample.fine, writer);
    benchmark::DoNotOptimize(writer);
  }
  SetSymbols(state, SymbolsOf(sample.fine_classes), sample.fine_bytes.size());
}

void ChooseBase(benchmark::State& state, int64_t target) {
  const Sample& sample = GetSample();
  const OnTarget on_target(target);
  std::vector<uint8_t> classes(kRows);
  for (auto _ : state) ChooseBaseClasses(BuiltinTables(), kTokens, sample.base, {}, classes);
  SetSymbols(state, sample.base.size(), 0);
}

void ChooseRefinement(benchmark::State& state, int64_t target) {
  const Sample& sample = GetSample();
  const OnTarget on_target(target);
  std::vector<uint8_t> classes(kRows);
  for (auto _ : state) {
    ChooseRefinementClasses(BuiltinTables(), kTokens, sample.fine, sample.predictions, classes);
  }
  SetSymbols(state, sample.fine.size(), 0);
}

void MemcpyValues(benchmark::State& state) {
  const std::vector<int16_t>& values = GetSample().base;
  std::vector<int16_t> copy(values.size());
  for (auto _ : state) {
    std::memcpy(copy.data(), values.data(), values.size() * sizeof(int16_t));
    benchmark::ClobberMemory();
  }
  SetSymbols(state, values.size(), values.size() * sizeof(int16_t));
}

void ZstdCompress(benchmark::State& state, const std::string& symbols) {
  std::string out(ZSTD_compressBound(symbols.size()), '\0');
  size_t size = 0;
  for (auto _ : state) {
    size = ZSTD_compress(out.data(), out.size(), symbols.data(), symbols.size(), kZstdLevel);
  }
  SetSymbols(state, symbols.size(), size);
}

void ZstdDecompress(benchmark::State& state, const std::string& symbols) {
  std::string coded(ZSTD_compressBound(symbols.size()), '\0');
  coded.resize(
      ZSTD_compress(coded.data(), coded.size(), symbols.data(), symbols.size(), kZstdLevel));
  std::string out(symbols.size(), '\0');
  for (auto _ : state) ZSTD_decompress(out.data(), out.size(), coded.data(), coded.size());
  SetSymbols(state, symbols.size(), coded.size());
}

void RegisterAll() {
  using Run = void (*)(benchmark::State&, int64_t);
  const std::pair<const char*, Run> runs[] = {
      {"decode_base", DecodeBase},         {"decode_refinement", DecodeRefinement},
      {"encode_base", EncodeBase},         {"encode_refinement", EncodeRefinement},
      {"choose_base_classes", ChooseBase}, {"choose_refinement_classes", ChooseRefinement}};
  for (const auto& [name, run] : runs) {
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const std::string full_name = std::string(name) + "/" + hwy::TargetName(target);
      benchmark::RegisterBenchmark(full_name.c_str(), run, target);
    }
  }
  for (const bool refinement : {false, true}) {
    const Sample& sample = GetSample();
    const std::string symbols = SymbolBytes(refinement ? sample.fine : sample.base, refinement);
    const std::string suffix = refinement ? "_refinement" : "_base";
    benchmark::RegisterBenchmark(("zstd_compress" + suffix).c_str(), ZstdCompress, symbols);
    benchmark::RegisterBenchmark(("zstd_decompress" + suffix).c_str(), ZstdDecompress, symbols);
  }
  benchmark::RegisterBenchmark("memcpy_values", MemcpyValues);
}

}  // namespace
}  // namespace sluice::codec

int main(int argc, char** argv) {
  sluice::codec::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
