#include "sim/rate_parse.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice::sim {
namespace {

constexpr double kMbit = 1e6 / 8;  // bytes
constexpr TimeUs kMahimahiBinUs = 10000;
constexpr double kMahimahiBytes = 1500;
constexpr double kMaxMs = 24 * 3600e3;
constexpr double kMaxRate = 1e9;  // of what one value says, in its unit

absl::Status Bad(size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("trace, line ", line, ": ", what));
}

absl::StatusOr<double> Number(absl::string_view text, size_t line, double max) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value >= 0 && value <= max)) {
    return Bad(line, absl::StrCat("'", text.substr(0, 40), "' is no number from 0 to ", max));
  }
  return value;
}

// What a comment says of the values.
struct Header {
  TimeUs step_us = kDefaultStepUs;
  bool rows = false;  // a trace per row, in Gbit/s
};

absl::Status ReadComment(absl::string_view comment, size_t line, Header& header) {
  constexpr absl::string_view kStep = "step_ms:";
  if (absl::StrContains(comment, "Gbit/s")) header.rows = true;
  const size_t at = comment.find(kStep);
  if (at == absl::string_view::npos) return absl::OkStatus();
  const absl::string_view rest =
      absl::StripLeadingAsciiWhitespace(comment.substr(at + kStep.size()));
  double ms = 0;
  if (!absl::SimpleAtod(rest.substr(0, rest.find_first_of(" ,;")), &ms) || !(ms >= 0.001) ||
      ms > kMaxMs) {
    return Bad(line, "step_ms is no time");
  }
  header.step_us = static_cast<TimeUs>(ms * 1e3);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RateTrace>> ParseMahimahi(absl::string_view text) {
  std::vector<double> rates;
  size_t line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    absl::StatusOr<double> ms = Number(line, line_number, kMaxMs);
    if (!ms.ok()) return ms.status();
    const size_t bin = static_cast<size_t>(*ms * 1e3) / kMahimahiBinUs;
    if (bin >= rates.size()) rates.resize(bin + 1);
    rates[bin] += kMahimahiBytes / (kMahimahiBinUs * 1e-6);
  }
  if (rates.empty()) return absl::InvalidArgumentError("trace: no values");
  return std::vector<RateTrace>{RateTrace(std::move(rates), kMahimahiBinUs)};
}

}  // namespace

absl::StatusOr<std::vector<RateTrace>> ParseRates(absl::string_view text, TraceFormat format) {
  if (text.size() > kMaxTraceBytes) return absl::InvalidArgumentError("trace: too long");
  if (format == TraceFormat::kMahimahi) return ParseMahimahi(text);
  Header header;
  std::vector<std::vector<double>> traces;
  size_t line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    if (const size_t comment = line.find('#'); comment != absl::string_view::npos) {
      if (absl::Status s = ReadComment(line.substr(comment), line_number, header); !s.ok()) {
        return s;
      }
      line = line.substr(0, comment);
    }
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    if (traces.empty() || header.rows) traces.emplace_back();
    for (absl::string_view word :
         absl::StrSplit(line, absl::ByAnyChar(" \t,"), absl::SkipEmpty())) {
      absl::StatusOr<double> value = Number(word, line_number, kMaxRate);
      if (!value.ok()) return value.status();
      if (!header.rows && line.find_first_of(" \t,") != absl::string_view::npos) {
        return Bad(line_number, "more than one value");
      }
      traces.back().push_back(*value * kMbit * (header.rows ? 1000 : 1));
    }
  }
  if (traces.empty()) return absl::InvalidArgumentError("trace: no values");
  std::vector<RateTrace> result;
  for (std::vector<double>& rates : traces) result.emplace_back(std::move(rates), header.step_us);
  return result;
}

}  // namespace sluice::sim
