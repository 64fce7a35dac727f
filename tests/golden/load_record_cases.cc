#include "tests/golden/load_record_cases.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "client/load_simulation.h"
#include "sluice/v1/load_record.pb.h"

namespace sluice::client {
namespace {

constexpr size_t kPrefixBytes = 24;
constexpr size_t kVersionAt = 8, kZeroAt = 12, kSizeAt = 16;

// The file with a changed message and the right checksum.
std::string Changed(const std::function<void(v1::LoadRecord&)>& change) {
  std::string bytes = SerializeRecord(ExampleLoadRecord());
  v1::LoadRecord message;
  message.ParseFromString(bytes.substr(kPrefixBytes, bytes.size() - kPrefixBytes - 8));
  change(message);
  const std::string changed = message.SerializeAsString();
  bytes = bytes.substr(0, kPrefixBytes) + changed + std::string(8, '\0');
  const uint64_t size = changed.size();
  bytes.replace(kSizeAt, 8, reinterpret_cast<const char*>(&size), 8);
  SealRecord(bytes);
  return bytes;
}

std::string Patched(size_t at, char byte, bool seal) {
  std::string bytes = SerializeRecord(ExampleLoadRecord());
  bytes[at] = byte;
  if (seal) SealRecord(bytes);
  return bytes;
}

std::vector<LoadRecordCase> ChangedCases() {
  using Message = v1::LoadRecord;
  const auto event = [](Message& m, int i) -> v1::LoadRecordEvent& { return *m.mutable_events(i); };
  const std::vector<std::tuple<const char*, const char*, std::function<void(Message&)>>> changes = {
      {"no_namespace", "namespace", [](Message& m) { m.clear_namespace_digest(); }},
      {"slo_negative", "SLO", [](Message& m) { m.set_slo_us(-1); }},
      {"no_chunks", "number of chunks", [](Message& m) { m.mutable_spec()->clear_chunks(); }},
      {"limit_huge", "times of the load",
       [](Message& m) { m.mutable_spec()->set_limit_us(int64_t{1} << 60); }},
      {"capability_unknown", "capability",
       [](Message& m) {
         m.mutable_spec()->set_capability(static_cast<v1::RecomputeCapability>(9));
       }},
      {"step_without_loss", "steps of a chunk",
       [](Message& m) { m.mutable_spec()->mutable_chunks(0)->add_step_bytes(1); }},
      {"step_huge", "bytes of a step",
       [](Message& m) { m.mutable_spec()->mutable_chunks(0)->set_step_bytes(0, 1ull << 50); }},
      {"compute_times_missing", "computing times",
       [](Message& m) { m.mutable_spec()->mutable_compute_us()->RemoveLast(); }},
      {"compute_times_huge", "computing times",
       [](Message& m) { m.mutable_spec()->set_compute_us(0, int64_t{1} << 60); }},
      {"event_of_no_kind", "not of one kind", [&](Message& m) { event(m, 0).clear_ask_shared(); }},
      {"event_of_two_kinds", "not of one kind", [&](Message& m) { event(m, 0).mutable_demoted(); }},
      {"event_time_huge", "time of an event",
       [&](Message& m) { event(m, 0).set_elapsed_us(int64_t{1} << 60); }},
      {"chunk_too_large", "a chunk that the load does not have",
       [&](Message& m) { event(m, 0).mutable_ask_shared()->set_chunk(1000); }},
      {"step_too_large", "a step that no chunk has",
       [&](Message& m) { event(m, 0).mutable_ask_shared()->set_first_step(1000); }},
      {"reason_missing", "a reason that is not there", [](Message& m) { m.clear_reasons(); }},
      {"rate_not_a_number", "link of a tick",
       [](Message& m) {
         for (v1::LoadRecordEvent& e : *m.mutable_events()) {
           if (e.has_tick()) e.mutable_tick()->mutable_link()->set_mean_bytes_per_s(std::nan(""));
         }
       }},
      {"scale_huge", "computing scale",
       [](Message& m) {
         for (v1::LoadRecordEvent& e : *m.mutable_events()) {
           if (e.has_tick()) e.mutable_tick()->set_compute_scale(1e300);
         }
       }},
  };
  std::vector<LoadRecordCase> cases;
  for (const auto& [name, expected, change] : changes) {
    cases.push_back({name, Changed(change), expected});
  }
  return cases;
}

}  // namespace

LoadRecord ExampleLoadRecord() {
  LoadRecord record;
  record.load_id = "example";
  record.program = "test 1";
  record.server = "127.0.0.1:7420";
  std::iota(record.namespace_digest.begin(), record.namespace_digest.end(), uint8_t{1});
  record.start = absl::FromUnixMicros(1'700'000'000'123'456);
  record.chunk_tokens = 256;
  record.first_chunk = 1;
  record.slo_us = 200'000;
  adapt::LoadSpec& spec = record.spec;
  spec.start_us = 5'000'000;
  spec.slo_us = 200'000;
  spec.reserve_us = 20'000;
  spec.limit_us = 400'000;
  spec.capability = adapt::RecomputeCapability::kBidirectional;
  spec.loss_stop = 0.001;
  spec.memory_bytes = 1 << 20;
  spec.weight = 2;
  spec.decode_us = {1500, 2500};
  spec.chunks = {{{1000, 500, 700}, {0.5, 0.25, 0.125}, 256}, {{900}, {0.5}, 256}, {}};
  spec.compute_us = {1000, 2000, 3000};
  const adapt::LinkView link = {1e6, 2e6, 1500, true, 7};
  adapt::TimeUs at_us = spec.start_us;
  const auto add = [&](adapt::Event event, adapt::Actions actions = {}) {
    record.events.push_back({at_us += 1234, std::move(event), std::move(actions)});
  };
  adapt::Actions decided;
  decided.asks = {{1, 0, 0, adapt::AskClass::kBase, 900, spec.start_us + 400'000, "a base"},
                  {0, 1, 2, adapt::AskClass::kRefinement, 1200, spec.start_us + 180'000, "better"}};
  decided.compute = adapt::Compute{0, "the engine must"};
  adapt::Actions last;
  last.cancels = {{0, 1, "over"}};
  last.give_ups = {{2, adapt::GiveUpReason::kNotStored, "not stored"}};
  last.closes = {{0, "over"}};
  last.loaded = {0, 1};
  last.finished = true;
  add(adapt::AskShared{1, 0, true});
  add(adapt::Tick{link, 1.5, 3});
  add(adapt::GrantBase{}, decided);
  add(adapt::BytesArrived{1, 0, 900});
  add(adapt::StepLoaded{1, 0});
  add(adapt::GrantRefinement{});
  add(adapt::Demoted{});
  add(adapt::LinkLost{true});
  add(adapt::LinkRestored{});
  add(adapt::StepFailed{0, 1, true});
  add(adapt::ChunksComputed{1});
  add(adapt::Tick{link, 1.5, 3}, last);
  record.omitted_events = 3;
  record.outcomes = {{1, RecomputeReason::kNone, 2, 2200, 80.5, 1e6, 2, 3, ""},
                     {2, RecomputeReason::kNone, 0, 900, 70, 1e6, 2, 3, ""},
                     {3, RecomputeReason::kNotStored, 0, 0, 1, 0, 0, 0, "not stored"}};
  record.bytes = 3100;
  record.ms = 90.25;
  return record;
}

std::vector<LoadRecord> SimulatedLoadRecords() {
  const sim::LoadModel model;
  sim::World world;
  world.link = sim::ConstantRate(100e6);
  world.failure_rate = 0.05;
  sim::Memory memory;
  model.Calibrate(memory.cost);
  std::vector<sim::SimLoad> loads;
  for (const adapt::TimeUs start_us : {0, 100'000}) {
    loads.push_back(sim::MakeLoad(model, 4096, start_us, 500'000, memory.cost));
    loads.back().spec.capability = adapt::RecomputeCapability::kBidirectional;
    loads.back().spec.limit_us = 600'000;
  }
  RecordingDriver driver;
  sim::Simulate(world, loads, driver, memory);
  return driver.TakeRecords();
}

std::vector<LoadRecordCase> LoadRecordCases() {
  const std::string example = SerializeRecord(ExampleLoadRecord());
  LoadRecord unplanned = ExampleLoadRecord();
  unplanned.spec = {};
  unplanned.events.clear();
  std::vector<LoadRecordCase> cases = {
      {"example", example, ""},
      {"unplanned", SerializeRecord(unplanned), ""},
      {"simulated", SerializeRecord(SimulatedLoadRecords()[1]), ""},
      {"empty", "", "magic"},
      {"magic_cut", example.substr(0, 5), "magic"},
      {"header_cut", example.substr(0, 18), "size"},
      {"message_cut", example.substr(0, example.size() / 2), "message"},
      {"checksum_cut", example.substr(0, example.size() - 1), "checksum"},
      {"too_long", example + "x", "too many"},
      {"other_magic", Patched(0, 'x', true), "no load record"},
      {"later_version", Patched(kVersionAt, 2, true), "version 2"},
      {"not_zero", Patched(kZeroAt, 1, true), "zero"},
      {"bit_flipped", Patched(kPrefixBytes + 40, 'x', false), "checksum"},
      {"no_message", Patched(kPrefixBytes, '\x07', true), "cannot be read"},
  };
  for (LoadRecordCase& changed : ChangedCases()) cases.push_back(std::move(changed));
  return cases;
}

}  // namespace sluice::client
