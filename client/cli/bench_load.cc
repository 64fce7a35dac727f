#include "client/cli/bench_load.h"

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cli/progress.h"
#include "client/loader.h"

namespace sluice::cli {
namespace {

// Decoded planes are not kept.
class NullSink : public client::PlaneSink {
 public:
  absl::Status Write(uint32_t, size_t, std::span<const std::span<const std::byte>>) override {
    return absl::OkStatus();
  }
};

void Add(const client::LoadResult& load, BenchResult& result) {
  result.ms.push_back(load.ms);
  result.bytes += load.bytes;
  for (const client::ChunkOutcome& outcome : load.outcomes) {
    const bool loaded = outcome.reason == client::RecomputeReason::kNone;
    result.loaded_chunks += loaded;
    ++result.outcomes[loaded ? absl::StrCat("level ", codec::LevelName(outcome.level))
                             : std::string(client::RecomputeReasonName(outcome.reason))];
  }
}

}  // namespace

BenchResult RunLoads(const codec::Profile& profile, const BenchLoad& bench) {
  const auto loader = client::Loader::Create(bench.store, {});
  BenchResult result;
  absl::Mutex mutex;  // guards result
  std::atomic<uint32_t> next = 0;
  Progress progress("loads", bench.loads);
  const auto work = [&] {
    for (uint32_t i = next++; i < bench.loads; i = next++) {
      client::LoadOptions options;
      options.namespace_digest = codec::NamespaceDigest(bench.descriptor);
      options.chunk_keys = bench.contexts[i % bench.contexts.size()];
      options.chunk_tokens = bench.descriptor.chunk_tokens;
      options.slo = bench.slo;
      options.exact_level = bench.level;
      options.load_id = absl::StrCat("sluice-bench-", i);
      NullSink sink;
      const auto load = loader->Load(profile, options, sink, nullptr, nullptr);
      absl::MutexLock lock(&mutex);
      Add(load, result);
      progress.Update(result.ms.size());
    }
  };
  const absl::Time start = absl::Now();
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < bench.concurrency; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  result.wall_s = absl::ToDoubleSeconds(absl::Now() - start);
  return result;
}

}  // namespace sluice::cli
