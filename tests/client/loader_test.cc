#include "client/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/load_plan.h"
#include "client/load_record_file.h"
#include "tests/client/scripted_store.h"

namespace sluice::client {
namespace {

using adapt::RecomputeCapability;
using Script = ScriptedStore::Script;

constexpr uint32_t kSeed = 20240611;
// What a load may take beyond its SLO, on a busy machine and under a sanitizer.
constexpr double kGraceMs = 250;

const TestContext& Context() {
  static const TestContext context = MakeContext(6, kSeed);
  return context;
}

// Keeps the latest bytes of each group.
class MemorySink final : public PlaneSink {
 public:
  absl::Status Write(uint32_t chunk_index, size_t group,
                     const codec::GroupDecoder& decoded) override {
    const codec::Profile& profile = Context().profile;
    const codec::GroupSpec& spec = profile.groups()[group];
    std::string bytes(GroupBytes(profile, group, TestContext::kChunkTokens), '\0');
    std::vector<std::byte*> begins(spec.num_planes);
    std::vector<codec::PlaneRuns> runs;
    auto* next = reinterpret_cast<std::byte*>(bytes.data());
    for (uint32_t i = 0; i < spec.num_planes; ++i) {
      const codec::PlaneSpec& plane = profile.geometry().planes[spec.first_plane + i];
      begins[i] = next;
      runs.push_back(codec::DenseRuns(plane, TestContext::kChunkTokens, begins[i]));
      next += plane.bytes_per_token() * TestContext::kChunkTokens;
    }
    Begin({chunk_index, group});
    const absl::Status status = decoded.Write(runs);
    absl::MutexLock lock(&mutex_);
    writing_.erase({chunk_index, group});
    groups_[{chunk_index, group}] = std::move(bytes);
    return status.ok() ? error_ : status;
  }

  void set_error(absl::Status error) { error_ = std::move(error); }
  std::string Group(uint32_t chunk, size_t group) const {
    absl::MutexLock lock(&mutex_);
    const auto found = groups_.find({chunk, group});
    return found == groups_.end() ? "" : found->second;
  }

 private:
  using Key = std::pair<uint32_t, size_t>;

  void Begin(const Key& key) {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(writing_.insert(key).second) << "two writes of a group at a time";
  }

  absl::Status error_;
  mutable absl::Mutex mutex_;
  std::set<Key> writing_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, std::string> groups_ ABSL_GUARDED_BY(mutex_);
};

class FixedControl final : public LoadControl {
 public:
  FixedControl(bool cancelled, uint32_t computed) : cancelled_(cancelled), computed_(computed) {}
  bool cancelled() const override { return cancelled_; }
  uint32_t computed_chunks() const override { return computed_; }

 private:
  const bool cancelled_;
  const uint32_t computed_;
};

// One server, one loader, one load at a time.
class LoaderTest : public testing::Test {
 protected:
  LoaderTest() { RecordProperty("seed", static_cast<int>(kSeed)); }

  void Start(Script script, Loader::Config config = {}) {
    store_ = std::make_shared<ScriptedStore>(Context(), std::move(script));
    loader_ = Loader::Create(store_, config);
  }

  LoadResult Load(const LoadOptions& options, LoadControl* control = nullptr) {
    std::map<uint32_t, ChunkOutcome> reported;
    const auto on_outcomes = [&](std::span<const ChunkOutcome> outcomes) {
      EXPECT_FALSE(outcomes.empty());
      for (const ChunkOutcome& outcome : outcomes) {
        EXPECT_TRUE(reported.emplace(outcome.chunk_index, outcome).second) << "reported twice";
      }
      ++told_;
    };
    told_ = 0;
    LoadOptions recorded = options;
    recorded.record = true;
    LoadResult result =
        loader_->Load(Context().SharedProfile(), recorded, sink_, on_outcomes, control);
    ExpectReplays(*result.record);
    EXPECT_EQ(reported.size(), result.outcomes.size());
    for (const ChunkOutcome& outcome : result.outcomes) {
      EXPECT_EQ(reported[outcome.chunk_index].reason, outcome.reason);
      EXPECT_EQ(reported[outcome.chunk_index].bytes, outcome.bytes);
      if (outcome.reason == RecomputeReason::kNone) ExpectWritten(outcome);
    }
    return result;
  }

  static void ExpectReplays(const LoadRecord& record) {
    const absl::StatusOr<LoadRecord> read = ParseRecord(SerializeRecord(record));
    ASSERT_TRUE(read.ok()) << read.status();
    const std::optional<ReplayDifference> difference = Replay(*read);
    EXPECT_FALSE(difference.has_value()) << difference->what;
  }

  // Each group in the sink is exactly what the container holds at the outcome's level, or at a
  // higher one if the step failed in another group.
  void ExpectWritten(const ChunkOutcome& outcome) {
    for (size_t group = 0; group < Context().profile.groups().size(); ++group) {
      const std::string written = sink_.Group(outcome.chunk_index, group);
      bool found = written == Context().Decoded(outcome.chunk_index, group, outcome.level);
      for (codec::Level level = outcome.level; !found && level < 2; ++level) {
        found = written == Context().Decoded(outcome.chunk_index, group, level + 1);
      }
      EXPECT_TRUE(found) << "chunk " << outcome.chunk_index << " group " << group;
    }
  }

  static std::vector<RecomputeReason> Reasons(const LoadResult& result) {
    std::vector<RecomputeReason> reasons;
    for (const ChunkOutcome& outcome : result.outcomes) reasons.push_back(outcome.reason);
    return reasons;
  }

  static void ExpectAll(const LoadResult& result, RecomputeReason reason) {
    ASSERT_EQ(result.outcomes.size(), Context().chunk_keys.size());
    for (const ChunkOutcome& outcome : result.outcomes) {
      EXPECT_EQ(RecomputeReasonName(outcome.reason), RecomputeReasonName(reason))
          << outcome.chunk_index << ": " << outcome.message;
    }
  }

  std::shared_ptr<ScriptedStore> store_;
  std::unique_ptr<Loader> loader_;
  MemorySink sink_;
  int told_ = 0;  // how often the last load told of outcomes
};

bool IsFor(const FetchAsk& ask, uint32_t chunk) {
  return ask.chunk_key == Context().chunk_keys[chunk];
}

// Answers nothing at all.
void Hang(const FetchAsk&, std::vector<FetchFrame>& frames) { frames.clear(); }

TEST_F(LoaderTest, LoadsTheFinestLossyLevel) {
  Start({});
  const LoadResult result = Load(Context().Options());
  ExpectAll(result, RecomputeReason::kNone);
  uint64_t bytes = 0;
  for (const ChunkOutcome& outcome : result.outcomes) {
    EXPECT_EQ(outcome.level, 2);
    EXPECT_EQ(outcome.bytes, Context().LevelBytes(outcome.chunk_index, 2));
    EXPECT_GT(outcome.bytes_per_s, 0);
    EXPECT_GT(outcome.ms, 0);
    bytes += outcome.bytes;
  }
  EXPECT_EQ(result.bytes, bytes);
  EXPECT_GT(loader_->link_status().bytes_per_s, 0);
}

TEST_F(LoaderTest, FrameSizesDoNotMatter) {
  for (size_t frame_bytes : {7, 64, 100000}) {
    Script script;
    script.frame_bytes = frame_bytes;
    Start(script);
    ExpectAll(Load(Context().Options()), RecomputeReason::kNone);
  }
}

TEST_F(LoaderTest, AsksForAllBasesFirst) {
  Start({});
  Load(Context().Options());
  const std::vector<FetchAsk> asks = store_->asks();
  ASSERT_GE(asks.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(asks[i].fetch_class, FetchClass::kBase);
    EXPECT_TRUE(asks[i].with_header);
    EXPECT_TRUE(IsFor(asks[i], 5 - i));
  }
  for (size_t i = 6; i < asks.size(); ++i) {
    EXPECT_EQ(asks[i].fetch_class, FetchClass::kRefinement);
    EXPECT_FALSE(asks[i].with_header);
  }
}

TEST_F(LoaderTest, AnExactLevelIsLoadedWithItsBytesAlone) {
  for (codec::Level level : {codec::Level{0}, codec::Level{1}, codec::Level{2}, codec::kLossless}) {
    Start({});
    LoadOptions options = Context().Options();
    options.exact_level = level;
    const LoadResult result = Load(options);
    ExpectAll(result, RecomputeReason::kNone);
    for (const ChunkOutcome& outcome : result.outcomes) {
      EXPECT_EQ(outcome.level, level);
      EXPECT_EQ(outcome.bytes, Context().LevelBytes(outcome.chunk_index, level));
    }
  }
}

TEST_F(LoaderTest, AnExactLevelThatIsNotStoredIsSaid) {
  Start({});
  LoadOptions options = Context().Options();
  options.exact_level = 5;
  const LoadResult result = Load(options);
  ExpectAll(result, RecomputeReason::kNotStored);
  EXPECT_EQ(result.outcomes[0].message, "level 5 is not stored");
  EXPECT_EQ(store_->num_streams(), 0);
}

TEST_F(LoaderTest, MaxLevelIsKept) {
  for (const auto& [max_level, expected] : std::map<codec::Level, codec::Level>{
           {0, 0}, {1, 1}, {200, 2}, {codec::kLossless, codec::kLossless}}) {
    Start({});
    LoadOptions options = Context().Options();
    options.max_level = max_level;
    const LoadResult result = Load(options);
    ExpectAll(result, RecomputeReason::kNone);
    for (const ChunkOutcome& outcome : result.outcomes) EXPECT_EQ(outcome.level, expected);
  }
}

TEST_F(LoaderTest, SkippedChunksHaveNoOutcome) {
  Start({});
  LoadOptions options = Context().Options();
  options.skip_chunks = 4;
  const LoadResult result = Load(options);
  ASSERT_EQ(result.outcomes.size(), 2u);
  EXPECT_EQ(result.outcomes[0].chunk_index, 4u);
  options.skip_chunks = 100;
  EXPECT_TRUE(Load(options).outcomes.empty());
}

TEST_F(LoaderTest, ADamagedSegmentIsFetchedAgainOnce) {
  int damaged = 0;
  Script script;
  script.change_answer = [&](const FetchAsk& ask, std::vector<FetchFrame>& frames) {
    if (!IsFor(ask, 3) || !ask.with_header || damaged++ > 0) return;
    frames.back().payload.back() ^= 1;
  };
  Start(script);
  ExpectAll(Load(Context().Options()), RecomputeReason::kNone);
  EXPECT_EQ(damaged, 2);
}

TEST_F(LoaderTest, AChunkThatStaysDamagedIsRecomputed) {
  Script script;
  script.change_answer = [](const FetchAsk& ask, std::vector<FetchFrame>& frames) {
    if (IsFor(ask, 3) && ask.with_header) frames.back().payload.back() ^= 1;
  };
  Start(script);
  const LoadResult result = Load(Context().Options());
  for (const ChunkOutcome& outcome : result.outcomes) {
    EXPECT_EQ(outcome.reason,
              outcome.chunk_index == 3 ? RecomputeReason::kDamaged : RecomputeReason::kNone);
  }
  EXPECT_THAT(result.outcomes[3].message, testing::HasSubstr("checksum"));
}

TEST_F(LoaderTest, ADamagedRefinementLeavesTheLevelBelow) {
  for (uint32_t layer : {1, 2}) {
    Script script;
    script.change_answer = [&](const FetchAsk& ask, std::vector<FetchFrame>& frames) {
      if (IsFor(ask, 3) && ask.first_layer == layer) frames.back().payload.back() ^= 1;
    };
    Start(script);
    const LoadResult result = Load(Context().Options());
    ASSERT_EQ(result.outcomes[3].reason, RecomputeReason::kNone);
    EXPECT_EQ(result.outcomes[3].level, layer - 1);
    EXPECT_EQ(result.outcomes[2].level, 2);
  }
}

TEST_F(LoaderTest, FramesThatAreNotAsAskedAreRefused) {
  const std::vector<std::function<void(std::vector<FetchFrame>&)>> faults = {
      [](auto& frames) { frames[1].offset += 1; },                         // gap
      [](auto& frames) { frames[1].offset -= 1; },                         // overlap
      [](auto& frames) { frames.erase(frames.begin() + 1); },              // lost
      [](auto& frames) { frames.insert(frames.begin(), frames[0]); },      // twice
      [](auto& frames) { frames.back().payload += 'x'; },                  // too long
      [](auto& frames) { frames.pop_back(), frames.back().last = true; },  // too short
      [](auto& frames) { frames[0].payload[20] ^= 1; },                    // header
      [](auto& frames) { frames[0].offset = ~uint64_t{0}; },
      [](auto& frames) {
        frames.resize(1);
        frames[0].payload.clear();
        frames[0].last = true;
        frames[0].status = absl::DataLossError("stored bytes are damaged");
      }};
  for (size_t i = 0; i < faults.size(); ++i) {
    Script script;
    script.frame_bytes = 300;
    script.change_answer = [&](const FetchAsk& ask, std::vector<FetchFrame>& frames) {
      if (IsFor(ask, 0)) faults[i](frames);
    };
    Start(script);
    const LoadResult result = Load(Context().Options());
    EXPECT_EQ(result.outcomes[0].reason, RecomputeReason::kDamaged) << "fault " << i;
    EXPECT_FALSE(result.outcomes[0].message.empty());
    EXPECT_EQ(result.outcomes[1].reason, RecomputeReason::kNone) << "fault " << i;
  }
}

TEST_F(LoaderTest, AFrameForNoAskEndsTheStream) {
  Script script;
  script.change_answer = [](const FetchAsk&, std::vector<FetchFrame>& frames) {
    for (FetchFrame& frame : frames) frame.ask_id += 1000;
  };
  Start(script);
  ExpectAll(Load(Context().Options()), RecomputeReason::kDamaged);
}

TEST_F(LoaderTest, AnotherChunksBytesAreNotGivenOut) {
  Start({});
  store_->Replace(2, Context().containers[1]);
  LoadResult result = Load(Context().Options());
  EXPECT_EQ(result.outcomes[2].reason, RecomputeReason::kDamaged);
  EXPECT_THAT(result.outcomes[2].message, testing::HasSubstr("manifest: tokens"));

  Script script;  // a server that lies in its manifest too
  script.change_manifests = [](std::vector<ChunkManifest>& manifests) {
    manifests[2].start_token = 2 * TestContext::kChunkTokens;
  };
  Start(script);
  store_->Replace(2, Context().containers[1]);
  result = Load(Context().Options());
  EXPECT_EQ(result.outcomes[2].reason, RecomputeReason::kDamaged);
  EXPECT_THAT(result.outcomes[2].message, testing::HasSubstr("chunk_key"));
  EXPECT_EQ(sink_.Group(2, 0), "");
}

TEST_F(LoaderTest, AnotherProfileIsUnsupported) {
  const TestContext other = MakeContext(6, kSeed, 4);
  Start({});
  store_->Replace(2, other.containers[2]);
  const LoadResult result = Load(Context().Options());
  EXPECT_EQ(result.outcomes[2].reason, RecomputeReason::kUnsupported);
  EXPECT_EQ(result.outcomes[1].reason, RecomputeReason::kNone);
}

TEST_F(LoaderTest, AServerThatDiesIsReportedLongBeforeTheSlo) {
  Script script;
  script.frame_bytes = 200;
  script.break_after_frames = 20;
  script.max_streams = 1;
  Start(script);
  const LoadResult result = Load(Context().Options(absl::Seconds(60)));
  EXPECT_LT(result.ms, 20000);
  int lost = 0;
  for (const ChunkOutcome& outcome : result.outcomes) {
    lost += outcome.reason == RecomputeReason::kServerUnavailable;
    EXPECT_TRUE(outcome.reason == RecomputeReason::kNone ||
                outcome.reason == RecomputeReason::kServerUnavailable);
  }
  EXPECT_GT(lost, 0);
}

TEST_F(LoaderTest, AStreamThatBreaksIsOpenedAgain) {
  Script script;
  script.frame_bytes = 1000;
  script.break_after_frames = 30;
  script.max_streams = 2;
  Start(script);
  const LoadResult result = Load(Context().Options());
  EXPECT_EQ(store_->num_streams(), 2);
  int loaded = 0;
  for (const ChunkOutcome& outcome : result.outcomes) {
    loaded += outcome.reason == RecomputeReason::kNone;
  }
  EXPECT_EQ(loaded, 6);
}

TEST_F(LoaderTest, AServerThatHangsCostsTheSloAtMost) {
  Script script;
  script.change_answer = Hang;
  Start(script);
  const LoadResult result = Load(Context().Options(absl::Milliseconds(100)));
  ExpectAll(result, RecomputeReason::kServerUnavailable);
  EXPECT_GE(result.ms, 74);  // bases may come until the end
  EXPECT_LT(result.ms, 100 + kGraceMs);
}

TEST_F(LoaderTest, ALookupThatHangsCostsAPartOfTheSlo) {
  Script script;
  script.lookup_hangs = true;
  Start(script);
  const LoadResult result = Load(Context().Options(absl::Milliseconds(200)));
  ExpectAll(result, RecomputeReason::kServerUnavailable);
  EXPECT_LT(result.ms, 100 + kGraceMs);
  EXPECT_EQ(store_->num_streams(), 0);
}

TEST_F(LoaderTest, ChunksThatDoNotArriveAreLate) {
  Script script;
  script.change_answer = [](const FetchAsk& ask, std::vector<FetchFrame>& frames) {
    if (IsFor(ask, 0) || IsFor(ask, 1)) frames.clear();
  };
  Start(script);
  const LoadResult result = Load(Context().Options(absl::Milliseconds(400)));
  EXPECT_LT(result.ms, 400 + kGraceMs);
  for (const ChunkOutcome& outcome : result.outcomes) {
    EXPECT_EQ(outcome.reason,
              outcome.chunk_index < 2 ? RecomputeReason::kLate : RecomputeReason::kNone);
  }
}

TEST_F(LoaderTest, WithoutTimeTheServerIsNotAsked) {
  Start({});
  ExpectAll(Load(Context().Options(absl::ZeroDuration())), RecomputeReason::kLate);
  ExpectAll(Load(Context().Options(-absl::Seconds(1))), RecomputeReason::kLate);
  EXPECT_EQ(store_->num_lookups(), 0);
}

TEST_F(LoaderTest, AMissingChunkCutsASuffixAndNothingElse) {
  for (RecomputeCapability capability :
       {RecomputeCapability::kSuffix, RecomputeCapability::kAny, RecomputeCapability::kNone}) {
    Start({});
    store_->Remove(2);
    LoadOptions options = Context().Options();
    options.capability = capability;
    const LoadResult result = Load(options);
    for (const ChunkOutcome& outcome : result.outcomes) {
      RecomputeReason expected = RecomputeReason::kNone;
      if (outcome.chunk_index == 2) expected = RecomputeReason::kNotStored;
      if (outcome.chunk_index > 2 && capability == RecomputeCapability::kSuffix) {
        expected = RecomputeReason::kAfterCut;
      }
      EXPECT_EQ(outcome.reason, expected) << outcome.chunk_index;
    }
  }
}

TEST_F(LoaderTest, AChunkRemovedAfterTheLookupIsNotStored) {
  Script script;
  script.change_answer = [](const FetchAsk& ask, std::vector<FetchFrame>& frames) {
    if (!IsFor(ask, 4)) return;
    frames.resize(1);
    frames[0].payload.clear();
    frames[0].last = true;
    frames[0].status = absl::NotFoundError("evicted");
  };
  Start(script);
  const LoadResult result = Load(Context().Options());
  EXPECT_EQ(result.outcomes[4].reason, RecomputeReason::kNotStored);
  EXPECT_EQ(result.outcomes[4].message, "evicted");
  EXPECT_EQ(result.outcomes[5].reason, RecomputeReason::kNone);
}

TEST_F(LoaderTest, AnUnknownNamespaceIsNotStored) {
  Script script;
  script.lookup_error = absl::NotFoundError("no such namespace");
  Start(script);
  for (int i = 0; i < 5; ++i) {
    ExpectAll(Load(Context().Options()), RecomputeReason::kNotStored);
    EXPECT_EQ(told_, 1);
  }
  EXPECT_FALSE(loader_->link_status().breaker_open);
}

TEST_F(LoaderTest, CountsWhatALoadWouldAskForAndAsksForNothing) {
  std::vector<ChunkManifest> manifests;
  for (const std::string& container : Context().containers) {
    manifests.push_back(ManifestOf(container));
  }
  LoadOptions options = Context().Options();
  options.capability = RecomputeCapability::kSuffix;
  const auto count = [&] {
    return loader_->CountPlanned(Context().profile, options, manifests, {});
  };
  Start({});
  EXPECT_EQ(count(), 6u);
  manifests[4].start_token += 1;  // of another context: it cuts the suffix
  EXPECT_EQ(count(), 4u);
  options.compute_us.assign(6, 0);
  EXPECT_EQ(count(), 0u);
  EXPECT_EQ(store_->num_lookups() + store_->num_streams(), 0);
  EXPECT_EQ(loader_->link_status().bytes_per_s, 0);

  Loader::Config config;
  config.memory_limit_bytes = 1000;
  Start({}, config);
  options.compute_us.clear();
  EXPECT_EQ(count(), 0u);
}

TEST_F(LoaderTest, MemoryLimitsTheLevelNotTheCoverage) {
  const uint64_t chunk_bytes = Context().LevelBytes(0, 2);
  Loader::Config config;
  config.decode_threads = 1;
  // Frames and scratch take their share first; about two chunks remain.
  const uint64_t scratch = 4 * 2 * 2 * 16 * TestContext::kChunkTokens * 2;
  config.memory_limit_bytes = 3 * kMaxFrameBytes + scratch + 2 * chunk_bytes;
  Start({}, config);
  const LoadResult result = Load(Context().Options());
  ExpectAll(result, RecomputeReason::kNone);
  int finest = 0;
  for (const ChunkOutcome& outcome : result.outcomes) finest += outcome.level == 2;
  EXPECT_GT(finest, 0);
  EXPECT_LT(finest, 6);

  config.memory_limit_bytes = 1000;
  Start({}, config);
  ExpectAll(Load(Context().Options()), RecomputeReason::kNodeBusy);
  EXPECT_EQ(told_, 1);  // given up by one plan
}

TEST_F(LoaderTest, ACancelledLoadEndsAtOnce) {
  Script script;
  script.change_answer = Hang;
  Start(script);
  FixedControl control(true, 0);
  const LoadResult result = Load(Context().Options(), &control);
  ExpectAll(result, RecomputeReason::kCancelled);
  EXPECT_LT(result.ms, 10000);
}

TEST_F(LoaderTest, WhatTheEngineHasComputedIsNotWaitedFor) {
  Script script;
  script.change_answer = [](const FetchAsk& ask, std::vector<FetchFrame>& frames) {
    if (IsFor(ask, 1) || IsFor(ask, 2)) frames.clear();
  };
  Start(script);
  FixedControl control(false, 3);
  LoadOptions options = Context().Options();
  options.capability = RecomputeCapability::kBidirectional;
  options.skip_chunks = 1;
  const LoadResult result = Load(options, &control);
  EXPECT_THAT(
      Reasons(result),
      testing::ElementsAre(RecomputeReason::kComputed, RecomputeReason::kComputed,
                           RecomputeReason::kNone, RecomputeReason::kNone, RecomputeReason::kNone));
}

TEST_F(LoaderTest, AfterFailuresTheServerIsLeftAlone) {
  Script script;
  script.lookup_error = absl::UnavailableError("connection refused");
  Start(script);
  ExpectAll(Load(Context().Options()), RecomputeReason::kServerUnavailable);
  ExpectAll(Load(Context().Options()), RecomputeReason::kServerUnavailable);
  EXPECT_TRUE(loader_->link_status().breaker_open);
  double least_ms = 1e9;
  for (int i = 0; i < 5; ++i) {
    const LoadResult result = Load(Context().Options());
    if (result.outcomes[0].reason != RecomputeReason::kBreakerOpen) break;  // back-off is over
    least_ms = std::min(least_ms, result.ms);
  }
  EXPECT_LT(least_ms, 1);
}

TEST_F(LoaderTest, ABrokenDestinationEndsTheLoad) {
  Start({});
  sink_.set_error(absl::InternalError("pool is gone"));
  const LoadResult result = Load(Context().Options());
  ExpectAll(result, RecomputeReason::kNodeBusy);
  EXPECT_EQ(result.outcomes[0].message, "destination: pool is gone");
}

TEST_F(LoaderTest, LoadsRunSideBySide) {
  Start({});
  std::vector<std::thread> threads;
  std::atomic<int> loaded = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      MemorySink sink;
      const LoadResult result =
          loader_->Load(Context().SharedProfile(), Context().Options(), sink, nullptr, nullptr);
      for (const ChunkOutcome& outcome : result.outcomes) {
        loaded += outcome.reason == RecomputeReason::kNone && outcome.level == 2;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loaded, 4 * 6);
}

TEST(RecomputeReasonName, EveryReasonHasItsOwn) {
  std::map<std::string_view, int> names;
  for (int i = 0; i <= static_cast<int>(RecomputeReason::kNodeBusy); ++i) {
    ++names[RecomputeReasonName(static_cast<RecomputeReason>(i))];
  }
  EXPECT_EQ(names.size(), 11u);
}

}  // namespace
}  // namespace sluice::client
