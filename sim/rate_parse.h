// Reads bandwidth traces from text.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/rate_trace.h"

namespace sluice::sim {

inline constexpr size_t kMaxTraceBytes = size_t{64} << 20;
inline constexpr TimeUs kDefaultStepUs = 1000000;

enum class TraceFormat {
  kValues,    // one rate per line; see below
  kMahimahi,  // one time in ms per line, at which 1500 bytes can be carried
};

// kValues: lines with one value in Mbit/s. `#` starts a comment, in which `step_ms: N` gives the
// time of a value, and `Gbit/s` another unit with one trace per row. Rates of the result are bytes
// per second. InvalidArgument names the line at fault; there is at least one trace.
absl::StatusOr<std::vector<RateTrace>> ParseRates(absl::string_view text, TraceFormat format);

}  // namespace sluice::sim
