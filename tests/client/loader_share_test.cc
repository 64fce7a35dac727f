// Loads that share a link: transfers, and what is left to the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "tests/client/scripted_store.h"

namespace sluice::client {
namespace {

using Script = ScriptedStore::Script;

const TestContext& Context() {
  static const TestContext context = MakeContext(6, 20261202);
  return context;
}

// Counts writes; what is written is checked by other tests.
class CountingSink final : public PlaneSink {
 public:
  absl::Status Write(uint32_t chunk_index, size_t group, const codec::GroupDecoder&) override {
    absl::MutexLock lock(&mutex_);
    written_.insert({chunk_index, group});
    return absl::OkStatus();
  }
  size_t size() {
    absl::MutexLock lock(&mutex_);
    return written_.size();
  }

 private:
  absl::Mutex mutex_;
  std::set<std::pair<uint32_t, size_t>> written_ ABSL_GUARDED_BY(mutex_);
};

class Control final : public LoadControl {
 public:
  bool cancelled() const override { return false; }
  uint32_t computed_chunks() const override { return 0; }
  void OnCompute(uint32_t chunk_index) override { computes.push_back(chunk_index); }

  std::vector<uint32_t> computes;
};

size_t CountLoaded(const LoadResult& result) {
  size_t count = 0;
  for (const ChunkOutcome& outcome : result.outcomes) {
    count += outcome.reason == RecomputeReason::kNone;
  }
  return count;
}

class LoaderShareTest : public testing::Test {
 protected:
  void Start(Script script) {
    store_ = std::make_shared<ScriptedStore>(Context(), std::move(script));
    loader_ = Loader::Create(store_, {});
  }
  LoadResult Load(const LoadOptions& options, PlaneSink& sink, LoadControl* control = nullptr) {
    return loader_->Load(Context().SharedProfile(), options, sink, nullptr, control);
  }

  std::shared_ptr<ScriptedStore> store_;
  std::unique_ptr<Loader> loader_;
};

TEST_F(LoaderShareTest, TheSameBytesAreTransferredOnce) {
  Start({});
  const LoadOptions options = Context().Options();
  CountingSink first, second;
  EXPECT_EQ(CountLoaded(Load(options, first)), 6u);
  const size_t asks = store_->asks().size();
  const LoadResult again = Load(options, second);
  EXPECT_EQ(CountLoaded(again), 6u);
  EXPECT_EQ(second.size(), first.size());
  EXPECT_EQ(store_->asks().size(), asks);
  EXPECT_EQ(again.bytes, 0u);  // none came over the network
}

TEST_F(LoaderShareTest, LoadsAtATimeShareTransfers) {
  Start({});
  const LoadOptions options = Context().Options();
  std::vector<std::thread> threads;
  std::vector<CountingSink> sinks(4);
  std::vector<size_t> loaded(sinks.size());
  for (size_t i = 0; i < sinks.size(); ++i) {
    threads.emplace_back([&, i] { loaded[i] = CountLoaded(Load(options, sinks[i])); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(loaded, testing::Each(6u));
  std::set<std::pair<codec::Digest, uint32_t>> asked;
  for (const FetchAsk& ask : store_->asks()) {
    for (uint32_t i = 0; i < ask.num_layers; ++i) {
      EXPECT_TRUE(asked.emplace(ask.chunk_key, ask.first_layer + i).second) << "asked twice";
    }
  }
}

TEST_F(LoaderShareTest, WhoeverFollowsCarriesOnAlone) {
  constexpr uint32_t kImpatientMs = 400;
  Script script;
  script.change_answer = [](const FetchAsk& ask, std::vector<FetchFrame>& frames) {
    if (ask.deadline_ms <= kImpatientMs) frames.clear();
  };
  Start(script);
  CountingSink first, second;
  LoadResult impatient, patient;
  std::thread one(
      [&] { impatient = Load(Context().Options(absl::Milliseconds(kImpatientMs)), first); });
  while (store_->asks().empty()) std::this_thread::yield();
  std::thread two([&] { patient = Load(Context().Options(), second); });
  one.join();
  two.join();
  EXPECT_EQ(CountLoaded(impatient), 0u);
  EXPECT_EQ(CountLoaded(patient), 6u);
}

TEST_F(LoaderShareTest, ComputingThatIsFasterIsLeftToTheEngine) {
  Start({});
  LoadOptions options = Context().Options();
  options.capability = adapt::RecomputeCapability::kSuffix;
  CountingSink sink;
  EXPECT_EQ(CountLoaded(Load(options, sink)), 6u);  // measures the link
  options.chunk_keys[5] = {};                       // a context of its own
  options.compute_us.assign(6, 0);
  const LoadResult result = Load(options, sink);
  for (const ChunkOutcome& outcome : result.outcomes) {
    EXPECT_EQ(outcome.reason, RecomputeReason::kComputeFaster) << outcome.message;
  }
}

TEST_F(LoaderShareTest, TheEngineIsToldToComputeBesideASilentServer) {
  Script script;
  script.change_answer = [](const FetchAsk&, std::vector<FetchFrame>& frames) { frames.clear(); };
  Start(script);
  LoadOptions options = Context().Options(absl::Milliseconds(200));
  options.capability = adapt::RecomputeCapability::kBidirectional;
  options.skip_chunks = 1;
  CountingSink sink;
  Control control;
  Load(options, sink, &control);
  EXPECT_THAT(control.computes, testing::ElementsAre(1u));
}

}  // namespace
}  // namespace sluice::client
