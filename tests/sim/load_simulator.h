// One load on a simulated link, in virtual time: the planner and the estimator are the ones that
// ship.
//
// The server answers bases before refinements, each class in the order of the asks; bytes arrive in
// frames; decoding takes time. Steps can be made to fail. Everything follows from the inputs: the
// same ones give the same log.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "adapt/link_estimator.h"
#include "adapt/planner.h"

namespace sluice::sim {

using adapt::TimeUs;

// Bytes per second that the link carries at a time.
using LinkModel = std::function<double(TimeUs now_us)>;

LinkModel ConstantLink(double bytes_per_s);
// `before` until `at_us`, then `after`.
LinkModel StepLink(double before, double after, TimeUs at_us);
// Up for `up_us`, then nothing for `down_us`, and so on.
LinkModel OnOffLink(double bytes_per_s, TimeUs up_us, TimeUs down_us);
// A new uniform draw from [low, high) every `hold_us`.
LinkModel RandomLink(uint32_t seed, double low, double high, TimeUs hold_us);
// One value per line in Mbit/s, `#` starts a comment; each lasts `hold_us`; repeats. Empty if there
// are no values.
LinkModel TraceLink(const std::string& path, TimeUs hold_us);

struct SimConfig {
  adapt::LoadSpec spec;
  LinkModel link;
  TimeUs rtt_us = 2000;
  uint64_t frame_bytes = 64 << 10;
  double decode_bytes_per_s = 2e9;
  uint32_t seed = 1;
  double failure_rate = 0;   // of answered asks
  TimeUs link_lost_us = -1;  // for good
  // Chunks per second that the engine computes from the front.
  double computed_per_s = 0;
};

struct SimResult {
  std::vector<int> steps;  // loaded step per chunk, -1: given up
  TimeUs finished_us = 0;
  uint64_t received_bytes = 0;
  std::vector<std::string> log;     // one line per decision
  std::vector<std::string> broken;  // invariants that did not hold

  // Chunks that have no step.
  int missing() const;
};

SimResult Simulate(const SimConfig& config);

// Time at which all bases are there when they are sent back to back without asking, the bound of
// any loader; -1 when that is after `limit_us`.
TimeUs BasesArriveUs(const SimConfig& config, TimeUs limit_us);

}  // namespace sluice::sim
