#include "client/cli/failure.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

constexpr char kHintPayload[] = "sluice/hint";

ExitCode CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kPermissionDenied:
      return kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kUnreachable;
    case absl::StatusCode::kDataLoss:
      return kDamaged;
    default:
      return kFailure;
  }
}

// Messages may quote hostile bytes and must stay on one line.
void PrintLine(const char* what, absl::string_view text) {
  std::string line(text);
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  std::fprintf(stderr, "sluice: %s: %s\n", what, line.c_str());
}

}  // namespace

absl::Status WithHint(absl::Status status, absl::string_view hint) {
  if (!status.ok()) status.SetPayload(kHintPayload, absl::Cord(hint));
  return status;
}

absl::Status WithPrefix(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  absl::Status result(status.code(), absl::StrCat(prefix, ": ", status.message()));
  if (const auto hint = status.GetPayload(kHintPayload)) result.SetPayload(kHintPayload, *hint);
  return result;
}

ExitCode ReportFailure(const absl::Status& status) {
  PrintLine("error", status.message());
  if (const auto hint = status.GetPayload(kHintPayload)) PrintLine("hint", std::string(*hint));
  return CodeOf(status);
}

void ReportUsage(absl::string_view message, absl::string_view hint) {
  PrintLine("error", message);
  PrintLine("hint", hint);
}

void Note(absl::string_view message) { PrintLine("note", message); }

}  // namespace sluice::cli
