// How a command ends: its exit code, and what a user reads when it fails.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {

// Documented in README.md and in `sluice --help`.
enum ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,        // bad usage or input
  kUnreachable = 3,  // no answer from the server or daemon
  kPartial = 4,      // some chunks must be recomputed
  kDamaged = 5,      // bytes failed a check
};

// The same error with advice for the user, one line without a full stop.
absl::Status WithHint(absl::Status status, absl::string_view hint);
// The same error with "prefix: " before its message.
absl::Status WithPrefix(const absl::Status& status, absl::string_view prefix);

// Prints "sluice: error: ..." and the hint, if any, to stderr; returns the exit code. REQUIRES:
// !ok().
ExitCode ReportFailure(const absl::Status& status);
void ReportUsage(absl::string_view message, absl::string_view hint);
// Prints "sluice: note: ..." to stderr.
void Note(absl::string_view message);

}  // namespace sluice::cli
