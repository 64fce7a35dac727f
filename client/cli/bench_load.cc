#include "client/cli/bench_load.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cli/progress.h"
#include "client/load_plan.h"
#include "client/loader.h"

namespace sluice::cli {
namespace {

// Planes are decoded, but not kept.
class ForgetfulSink : public client::PlaneSink {
 public:
  ForgetfulSink(const codec::Profile& profile, uint32_t chunk_tokens)
      : profile_(profile), chunk_tokens_(chunk_tokens) {}

  absl::Status Write(uint32_t, size_t group, const codec::GroupDecoder& decoded) override {
    const codec::GroupSpec& spec = profile_.groups()[group];
    std::vector<std::byte> bytes(client::GroupBytes(profile_, group, chunk_tokens_));
    std::vector<std::byte*> begins(spec.num_planes);
    std::vector<codec::PlaneRuns> runs;
    size_t offset = 0;
    for (uint32_t i = 0; i < spec.num_planes; ++i) {
      const codec::PlaneSpec& plane = profile_.geometry().planes[spec.first_plane + i];
      begins[i] = bytes.data() + offset;
      runs.push_back(codec::DenseRuns(plane, chunk_tokens_, begins[i]));
      offset += plane.bytes_per_token() * chunk_tokens_;
    }
    return decoded.Write(runs);
  }

 private:
  const codec::Profile& profile_;
  const uint32_t chunk_tokens_;
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

BenchResult RunLoads(const std::shared_ptr<const codec::Profile>& profile, const BenchLoad& bench) {
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
      ForgetfulSink sink(*profile, options.chunk_tokens);
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
