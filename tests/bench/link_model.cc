// What the simulator makes of recorded loads on the links that they had.
//
//   link_model RTT_MS [RECORD TRACE]...
// Loads are in the order in which they ran: what the estimator learns from one helps the next.
// Decoding takes what the loads took it to. For each it prints a line of JSON: whether the smallest
// level of all chunks can be here in the SLO less a twentieth, and be decoded if that takes half as
// long again (`feasible`), and how many chunks are in time and their mean level.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/statusor.h"
#include "client/file_io.h"
#include "client/load_record_file.h"
#include "codec/status_macros.h"
#include "sim/rate_parse.h"
#include "sim/simulator.h"

namespace sluice {
namespace {

constexpr double kSpare = 1.05;  // a load is feasible only if it could end that much sooner
// Of decoding, beside the processes of the test.
constexpr double kSlowDecode = 1.5;
constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;

struct Options {
  sim::TimeUs rtt_us = 0;
  sim::Memory memory;
};

// The same at `start_us` as `trace` at 0.
sim::RateTrace StartingAt(const sim::RateTrace& trace, sim::TimeUs start_us) {
  return trace.From(trace.period_us() - start_us % trace.period_us());
}

sim::TimeUs BaseDecodeUs(const adapt::LoadSpec& spec) {
  return spec.decode_us.empty() ? 0 : spec.decode_us[0];
}

bool Feasible(const adapt::LoadSpec& spec, const sim::RateTrace& link, const Options& options) {
  double base_bytes = 0;
  for (const adapt::ChunkLadder& chunk : spec.chunks) {
    base_bytes += static_cast<double>(chunk.step_bytes.at(0));
  }
  const auto end_us = static_cast<sim::TimeUs>(static_cast<double>(spec.slo_us) / kSpare);
  // The lookup takes a round trip, and the first ask another.
  const sim::TimeUs last_us = end_us - spec.reserve_us;
  const auto decode_us =
      static_cast<sim::TimeUs>(kSlowDecode * static_cast<double>(spec.chunks.size()) *
                               static_cast<double>(BaseDecodeUs(spec)));
  return last_us > 2 * options.rtt_us && link.Amount(2 * options.rtt_us, last_us) >= base_bytes &&
         2 * options.rtt_us + decode_us <= last_us;
}

absl::Status Run(const std::string& record_path, const std::string& trace_path, Options& options) {
  ASSIGN_OR_RETURN(const std::string record_bytes, client::ReadFile(record_path, kMaxFileBytes));
  ASSIGN_OR_RETURN(const client::LoadRecord record, client::ParseRecord(record_bytes));
  ASSIGN_OR_RETURN(const std::string trace_text, client::ReadFile(trace_path, kMaxFileBytes));
  ASSIGN_OR_RETURN(const std::vector<sim::RateTrace> traces,
                   sim::ParseRates(trace_text, sim::TraceFormat::kValues));
  sim::SimLoad load;
  load.spec = record.spec;
  load.unit_tokens = record.chunk_tokens;
  const std::vector<sim::TimeUs>& decode_us = record.spec.decode_us;
  const sim::TimeUs usual_us = decode_us.empty() ? 0 : (decode_us.front() + decode_us.back()) / 2;
  load.decode_us.assign(record.spec.chunks.size(), usual_us);
  load.work_us.assign(record.spec.chunks.size(), 0);
  sim::World world;
  world.link = StartingAt(traces[0], record.spec.start_us);
  world.rtt_us = options.rtt_us;
  world.first_token_us = 0;
  sim::SluiceDriver driver;
  const sim::LoadOutcome outcome = Simulate(world, {load}, driver, options.memory)[0];
  size_t loaded = 0;
  double levels = 0;
  for (const int step : outcome.steps) {
    if (step < 0) continue;
    ++loaded;
    levels += step;
  }
  std::printf("{\"feasible\": %s, \"loaded\": %zu, \"mean_level\": %.4f, \"ms\": %.1f}\n",
              Feasible(record.spec, traces[0], options) ? "true" : "false", loaded,
              loaded == 0 ? 0 : levels / static_cast<double>(loaded),
              static_cast<double>(outcome.ttft_us) / 1e3);
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc < 2 || argc % 2 == 1) {
    std::fprintf(stderr, "usage: link_model RTT_MS [RECORD TRACE]...\n");
    return 2;
  }
  sluice::Options options;
  options.rtt_us = static_cast<sluice::sim::TimeUs>(std::atof(argv[1]) * 1e3);
  for (int i = 2; i < argc; i += 2) {
    const absl::Status status = sluice::Run(argv[i], argv[i + 1], options);
    if (status.ok()) continue;
    std::fprintf(stderr, "link_model: %s: %s\n", argv[i], std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
