// A load drawn over time: the link, what arrived by level, the engine, the SLO. As text, as JSON
// and as a drawing (SVG).
//
// Pure functions. Times count from the start of the load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/json.h"
#include "client/load_record.h"
#include "sim/rate_trace.h"

namespace sluice::cli {

struct Timeline {
  adapt::TimeUs column_us = 1;  // that one column stands for
  adapt::TimeUs slo_us = 0;
  size_t num_chunks = 0;
  // Per column; bytes/s.
  std::vector<double> link;      // what the link carries, of a simulation; empty if not known
  std::vector<double> estimate;  // what the planner took it to carry; 0: not known
  std::vector<double> arrived;
  std::vector<double> engine;  // share of the time in which it computed a chunk
  struct Row {
    std::string level;
    std::vector<uint32_t> chunks;  // that reached it, per column
  };
  std::vector<Row> levels;  // the smallest first

  size_t num_columns() const { return arrived.size(); }
};

// Up to the end of the load or of its SLO, whichever is later. `link` may be null.
Timeline MakeTimeline(const client::LoadRecord& record, const sim::RateTrace* link,
                      size_t num_columns);

// Lines of text, no longer than num_columns() and some; then what the marks in them mean.
std::string TimelineText(const Timeline& timeline);
Json ToJson(const Timeline& timeline);
std::string TimelineSvg(const Timeline& timeline, const std::string& title);

}  // namespace sluice::cli
