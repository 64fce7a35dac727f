// The links and loads over which policies are compared: ten sets of links, from recorded traces and
// from generators, and for each link a row of loads of random size and SLO.
#pragma once

#include <string>
#include <vector>

#include "sim/rate_trace.h"

namespace sluice::sim {

struct NamedLink {
  std::string set;
  std::string name;
  RateTrace rate;  // bytes per second
};

struct Request {
  uint32_t tokens = 0;
  TimeUs slo_us = 0;
  TimeUs trace_us = 0;  // time of the link's and the GPU's trace at which it starts
  TimeUs gap_us = 0;    // since the end of the request before it
};

inline constexpr double kGbit = 1e9 / 8;  // bytes

// Generated links, `copies` per mean rate of the sets that are random.
std::vector<NamedLink> GeneratedLinks(uint64_t seed, int copies);
// Every trace of a folder, scaled to .5, 1, 2 or 5 Gbit/s, ten times as fast as recorded if its
// steps are of a second. Empty if there is no such folder.
std::vector<NamedLink> RecordedLinks(const std::string& folder);
// $SLUICE_TRACES, or the CMake cache variable of that name.
std::string TraceFolder();
// The generated links and, if their folder is known, the recorded ones.
std::vector<NamedLink> AllLinks(uint64_t seed);

std::vector<Request> Requests(uint64_t seed, int count);
// The share of a GPU that loads get, over time.
RateTrace GpuShare(uint64_t seed);

}  // namespace sluice::sim
