// Time to decode a whole context into the blocks of an engine's pool, by level, and where it goes.
//
//   context_bench PROFILE CONTEXT.safetensors [TOKENS]
//
// Writes JSON. `ms`: decode with as many threads as the machine has, the best of some runs; the
// rest are sums of one thread's times for all groups: `entropy` is checksums and entropy decoding,
// `transform` the matrix products, `scatter` all else of writing planes: means, rotation, rounding,
// and the stores into blocks of 16 tokens. `memcpy_ms` copies as many bytes once.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/synchronization/blocking_counter.h"
#include "client/context_input.h"
#include "client/decode_pool.h"
#include "client/engine_pool.h"
#include "client/file_io.h"
#include "codec/bytes.h"
#include "codec/decoder.h"
#include "codec/encoder.h"
#include "codec/group_transform.h"
#include "codec/status_macros.h"

namespace sluice {
namespace {

constexpr uint32_t kChunkTokens = 256;
constexpr uint32_t kBlockTokens = 16;
constexpr int kRuns = 20;

template <typename Work>
double Milliseconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

template <typename Work>
double Best(Work work) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) best = std::min(best, Milliseconds(work));
  return best;
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "context_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

struct Chunk {
  std::string container;
  codec::ChunkHeader header;
};

class Bench {
 public:
  Bench(const codec::Profile& profile, const client::ContextInput& context, uint32_t num_tokens)
      : profile_(profile) {
    for (uint32_t start = 0; start < num_tokens; start += kChunkTokens) {
      const uint32_t tokens = std::min(kChunkTokens, num_tokens - start);
      const client::ChunkPlanes planes(context, start, tokens);
      codec::ChunkIdentity identity;
      identity.start_token = start;
      auto encoded = codec::EncodeChunk(profile, identity, planes.planes(), tokens, {});
      Require(encoded.status());
      Chunk& chunk = chunks_.emplace_back();
      chunk.container = std::move(encoded->container);
      chunk.header = *codec::ParseChunkHeader(codec::AsBytes(chunk.container));
    }
    num_blocks_ = (num_tokens + kBlockTokens - 1) / kBlockTokens;
    auto pool = client::EnginePool::Create(profile.geometry(), num_blocks_, kBlockTokens);
    Require(pool.status());
    pool_ = *std::move(pool);
  }

  size_t num_tasks() const { return chunks_.size() * profile_.groups().size(); }

  // All groups, on a pool of threads as a node has it.
  void Decode(codec::Level level) {
    absl::BlockingCounter left(static_cast<int>(num_tasks()));
    for (size_t task = 0; task < num_tasks(); ++task) {
      threads_.Post(false, [this, task, level, &left] {
        static thread_local codec::GroupDecoder decoder;
        Read(task, level, decoder);
        Write(task, decoder);
        left.DecrementCount();
      });
    }
    left.Wait();
  }

  void PrintLevel(codec::Level level, uint64_t bytes) {
    const double ms = Best([&] { Decode(level); });
    double entropy = 0;
    double write = 0;
    double transform = 0;
    uint64_t coded = 0;
    for (size_t task = 0; task < num_tasks(); ++task) {
      codec::GroupDecoder decoder;
      entropy += Best([&] { Read(task, level, decoder); });
      write += Best([&] { Write(task, decoder); });
      transform += Transform(task, level);
    }
    for (const Chunk& chunk : chunks_) coded += chunk.header.LayerOffset(level + 1);
    std::printf(
        "    {\"level\": %d, \"bits\": %.3f, \"ms\": %.2f, \"entropy_ms\": %.2f, "
        "\"transform_ms\": %.2f, \"scatter_ms\": %.2f, \"gb_per_s_core\": %.3f}",
        level, 16.0 * static_cast<double>(coded) / static_cast<double>(bytes), ms, entropy,
        transform, write - transform, static_cast<double>(bytes) / 1e6 / (entropy + write));
  }

 private:
  void Read(size_t task, codec::Level level, codec::GroupDecoder& decoder) const {
    const Chunk& chunk = ChunkOf(task);
    Require(decoder.Read(profile_, chunk.header, GroupOf(task), level, Segments(task, level)));
  }

  void Write(size_t task, const codec::GroupDecoder& decoder) const {
    const codec::GroupSpec& group = profile_.groups()[GroupOf(task)];
    std::vector<uint32_t> blocks((ChunkOf(task).header.num_tokens + kBlockTokens - 1) /
                                 kBlockTokens);
    std::iota(blocks.begin(), blocks.end(), ChunkOf(task).header.start_token / kBlockTokens);
    Require(pool_->blocks().Access(group.first_plane, group.num_planes, blocks,
                                   [&](auto planes) { return decoder.Write(planes); }));
  }

  // The matrix product alone.
  double Transform(size_t task, codec::Level level) const {
    const Chunk& chunk = ChunkOf(task);
    const size_t group = GroupOf(task);
    const codec::SegmentContext context{&profile_, group, chunk.header.start_token,
                                        chunk.header.num_tokens};
    const auto segments = Segments(task, level);
    codec::GroupCode code;
    std::vector<std::vector<std::byte>> exact;
    for (uint32_t i = 0; i < context.spec().num_planes; ++i) {
      exact.emplace_back(chunk.header.num_tokens * context.plane(i).bytes_per_token());
    }
    const std::vector<std::span<std::byte>> views(exact.begin(), exact.end());
    Require(codec::ReadBaseSegment(context, segments[0], views, code));
    for (size_t i = 1; i < segments.size(); ++i) {
      Require(codec::ReadRefinementSegment(context, segments[i], code));
    }
    if (!context.is_calibrated() || code.classes.empty()) return 0;
    const auto matrix = profile_.transforms().Synthesis(profile_, group);
    Require(matrix.status());
    size_t rows = code.classes.size();
    while (rows > 0 && code.classes[rows - 1] == 0) --rows;
    codec::AlignedBuffer sums;
    const size_t size = codec::BlockedSize(context.num_tokens, (*matrix)->num_outputs());
    Require(sums.Reserve(size * sizeof(float)));
    codec::ProductScratch scratch;
    const auto values = std::span<const int16_t>(code.values).first(rows * context.num_tokens);
    return Best([&] {
      Require((*matrix)->Synthesize(values, context.num_tokens, scratch, sums.As<float>(size)));
    });
  }

  const Chunk& ChunkOf(size_t task) const { return chunks_[task / profile_.groups().size()]; }
  size_t GroupOf(size_t task) const { return task % profile_.groups().size(); }

  std::vector<std::span<const std::byte>> Segments(size_t task, codec::Level level) const {
    const Chunk& chunk = ChunkOf(task);
    std::vector<std::span<const std::byte>> segments;
    for (int layer = 0; layer <= level; ++layer) {
      segments.push_back(codec::AsBytes(chunk.container)
                             .subspan(chunk.header.SegmentOffset(layer, GroupOf(task)),
                                      chunk.header.layers[layer].segments[GroupOf(task)].bytes));
    }
    return segments;
  }

  const codec::Profile& profile_;
  std::vector<Chunk> chunks_;
  uint32_t num_blocks_ = 0;
  std::unique_ptr<client::EnginePool> pool_;
  client::DecodePool threads_{std::thread::hardware_concurrency()};
};

int Run(int argc, char** argv) {
  uint32_t num_tokens = 0;
  if (argc < 3 || argc > 4 || (argc == 4 && !absl::SimpleAtoi(argv[3], &num_tokens))) {
    std::fprintf(stderr, "usage: context_bench PROFILE CONTEXT.safetensors [TOKENS]\n");
    return 2;
  }
  auto bytes = client::ReadFile(argv[1]);
  Require(bytes.status());
  const auto profile = codec::Profile::Parse(*std::move(bytes));
  Require(profile.status());
  const auto context = client::ReadContext(argv[2]);
  Require(context.status());
  if (num_tokens == 0 || num_tokens > context->num_tokens) num_tokens = context->num_tokens;
  const uint64_t plane_bytes = num_tokens * context->geometry.bytes_per_token();
  const std::string from(plane_bytes, '\1');
  std::string to(plane_bytes, '\0');
  Bench bench(*profile, *context, num_tokens);
  std::printf(
      "{\"tokens\": %u, \"plane_bytes\": %lu, \"threads\": %u, \"memcpy_ms\": %.2f,\n"
      "  \"levels\": [\n",
      num_tokens, static_cast<unsigned long>(plane_bytes), std::thread::hardware_concurrency(),
      Best([&] { std::memcpy(to.data(), from.data(), plane_bytes); }));
  for (int level = 0; level < profile->num_levels(); ++level) {
    bench.PrintLevel(static_cast<codec::Level>(level), plane_bytes);
    std::printf(level + 1 < profile->num_levels() ? ",\n" : "]}\n");
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Run(argc, argv); }
