#include "client/load_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "client/load_record_file.h"
#include "client/load_simulation.h"
#include "client/load_story.h"
#include "tests/golden/load_record_cases.h"

namespace sluice::client {
namespace {

using adapt::TimeUs;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20261202;
constexpr int kSimulations = 60;

void ExpectSame(const LoadRecord& a, const LoadRecord& b) {
  EXPECT_EQ(a.load_id, b.load_id);
  EXPECT_EQ(a.program, b.program);
  EXPECT_EQ(a.server, b.server);
  EXPECT_EQ(a.namespace_digest, b.namespace_digest);
  EXPECT_EQ(a.start, b.start);
  EXPECT_EQ(a.chunk_tokens, b.chunk_tokens);
  EXPECT_EQ(a.first_chunk, b.first_chunk);
  EXPECT_EQ(a.slo_us, b.slo_us);
  EXPECT_EQ(a.spec, b.spec);
  ASSERT_EQ(a.events.size(), b.events.size());
  for (size_t i = 0; i < a.events.size(); ++i) EXPECT_EQ(a.events[i], b.events[i]) << i;
  EXPECT_EQ(a.omitted_events, b.omitted_events);
  EXPECT_EQ(a.outcomes, b.outcomes);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.ms, b.ms);
}

std::string ReadGolden(const LoadRecordCase& c) {
  std::ifstream in(
      absl::StrCat(SLUICE_SOURCE_DIR, "/tests/golden/", c.expected.empty() ? "accept" : "reject",
                   "/load_record/", c.name, ".bin"),
      std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Random loads over one random link: some share it, some fail, some lose the link.
std::vector<LoadRecord> RandomRecords(uint64_t seed) {
  std::mt19937_64 random(seed);
  const sim::LoadModel model;
  sim::World world;
  world.link = sim::UniformRate(random, 1e6, 1e9, 100'000, 50);
  world.gpu = sim::ChoiceRate(random, {1, 0.5, 0.1}, 0.7, 50'000, 100);
  world.rtt_us = static_cast<TimeUs>(random() % 20'000);
  world.failure_rate = random() % 3 == 0 ? 0.1 : 0;
  if (random() % 5 == 0) world.link_lost_us = static_cast<TimeUs>(random() % 1'000'000);
  world.seed = seed;
  sim::Memory memory;
  if (random() % 4 != 0) model.Calibrate(memory.cost);
  std::vector<sim::SimLoad> loads;
  for (uint64_t i = 0; i <= random() % 3; ++i) {
    const auto tokens = static_cast<uint32_t>(500 + random() % 16'000);
    const auto slo_us = static_cast<TimeUs>(100'000 + random() % 1'500'000);
    loads.push_back(
        sim::MakeLoad(model, tokens, static_cast<TimeUs>(random() % 500'000), slo_us, memory.cost));
    adapt::LoadSpec& spec = loads.back().spec;
    spec.capability = static_cast<adapt::RecomputeCapability>(random() % 4);
    spec.limit_us = slo_us + static_cast<TimeUs>(random() % 1'000'000);
    spec.weight = 1 + static_cast<double>(random() % 3);
    if (random() % 4 == 0) spec.memory_bytes = 100 << 20;
  }
  RecordingDriver driver;
  sim::Simulate(world, loads, driver, memory);
  return driver.TakeRecords();
}

TEST(LoadRecordTest, ExampleSurvivesTheFile) {
  const LoadRecord example = ExampleLoadRecord();
  const absl::StatusOr<LoadRecord> read = ParseRecord(SerializeRecord(example));
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSame(*read, example);
}

TEST(LoadRecordTest, Golden) {
  for (const LoadRecordCase& c : LoadRecordCases()) {
    SCOPED_TRACE(c.name);
    const std::string bytes = ReadGolden(c);
    const absl::StatusOr<LoadRecord> record = ParseRecord(bytes);
    if (c.expected.empty()) {
      ASSERT_TRUE(record.ok()) << record.status();
      EXPECT_EQ(SerializeRecord(*record), bytes);
    } else {
      EXPECT_THAT(std::string(record.status().message()), HasSubstr(c.expected));
    }
    // What the planner decides may change; the other files are made by hand and must not.
    if (c.name == "simulated") continue;
    EXPECT_EQ(c.bytes, bytes) << "run make_load_records";
  }
}

TEST(LoadRecordTest, EveryCutAndEveryChangedByteIsRefused) {
  const std::string bytes = SerializeRecord(ExampleLoadRecord());
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(ParseRecord(bytes.substr(0, i)).ok()) << i;
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    EXPECT_FALSE(ParseRecord(changed).ok()) << i;
  }
}

TEST(LoadRecordTest, SimulatedLoadsReplay) {
  RecordProperty("seed", static_cast<int>(kSeed));
  size_t events = 0, bytes = 0, loads = 0;
  for (uint64_t seed = kSeed; seed < kSeed + kSimulations; ++seed) {
    for (const LoadRecord& record : RandomRecords(seed)) {
      SCOPED_TRACE(absl::StrCat("seed ", seed));
      const std::string file = SerializeRecord(record);
      const absl::StatusOr<LoadRecord> read = ParseRecord(file);
      ASSERT_TRUE(read.ok()) << read.status();
      ExpectSame(*read, record);
      const std::optional<ReplayDifference> difference = Replay(*read);
      EXPECT_FALSE(difference.has_value()) << difference->what;
      EXPECT_EQ(record.omitted_events, 0);
      EXPECT_TRUE(record.events.back().actions.finished);
      for (const ChunkStory& story : TellChunks(record)) {
        EXPECT_TRUE(story.final_loaded || story.given_up.has_value());
      }
      ++loads;
      events += record.events.size();
      bytes += file.size();
    }
  }
  std::printf("%zu loads, %zu events, %.1f bytes each\n", loads, events,
              static_cast<double>(bytes) / static_cast<double>(events));
}

// What is changed in such a way that something else would have been decided is found.
TEST(LoadRecordTest, ChangedRecordsDiffer) {
  RecordProperty("seed", static_cast<int>(kSeed));
  for (uint64_t seed = kSeed; seed < kSeed + 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const LoadRecord record = RandomRecords(seed)[0];
    const auto asked = std::ranges::find_if(
        record.events, [](const RecordedEvent& e) { return !e.actions.asks.empty(); });
    if (asked == record.events.end()) continue;
    const size_t i = asked - record.events.begin();
    LoadRecord changed = record;
    changed.events[i].actions.asks[0].bytes += 1;
    EXPECT_EQ(Replay(changed)->event, i);
    changed = record;
    changed.events[i].actions.asks[0].reason = "another";
    EXPECT_EQ(Replay(changed)->event, i);
    changed = record;
    changed.events.erase(changed.events.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(Replay(changed).has_value());
    changed = record;
    const adapt::Ask& ask = record.events[i].actions.asks[0];
    changed.spec.chunks[ask.chunk].step_bytes[ask.first_step] += 1;
    EXPECT_TRUE(Replay(changed).has_value());
    changed = record;
    for (ChunkOutcome& outcome : changed.outcomes) outcome.reason = RecomputeReason::kNone;
    const bool all_loaded = changed.outcomes == record.outcomes;
    EXPECT_EQ(Replay(changed).has_value(), !all_loaded);
  }
}

TEST(LoadRecordTest, LongLogKeepsItsStartAndReplays) {
  LoadRecord record = RandomRecords(kSeed)[0];
  EventLog log(50 * sizeof(RecordedEvent));
  for (const RecordedEvent& e : record.events) log.Add(e.at_us, e.event, e.actions);
  const size_t all = record.events.size();
  record.events = log.TakeEvents();
  record.omitted_events = log.omitted_events();
  EXPECT_LE(record.events.size(), 50);
  EXPECT_EQ(record.events.size() + record.omitted_events, all);
  EXPECT_FALSE(Replay(record).has_value());
}

}  // namespace
}  // namespace sluice::client
