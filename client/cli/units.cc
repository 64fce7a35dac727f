#include "client/cli/units.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::cli {
namespace {

// 1234567 -> "1.23 M"; whole numbers below 1000 stay whole.
std::string Scale(double value) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++prefix;
  }
  if (prefix == 0 && value == std::floor(value)) return absl::StrFormat("%.0f ", value);
  const int decimals = std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f %s", decimals, value, kPrefixes[prefix]);
}

}  // namespace

std::string FormatBytes(double bytes) { return Scale(bytes) + "B"; }

std::string FormatRate(double bytes_per_s) {
  return bytes_per_s > 0 ? Scale(bytes_per_s) + "B/s" : "-";
}

std::string FormatMs(double ms) {
  if (ms >= 999.5)
    return absl::StrFormat("%.*f s", ms >= 99950 ? 0 : ms >= 9995 ? 1 : 2, ms / 1000);
  return absl::StrFormat("%.*f ms", ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : 2, ms);
}

std::string FormatUs(int64_t us) { return FormatMs(static_cast<double>(us) * 1e-3); }

std::string FormatAge(uint64_t ms) {
  const uint64_t s = ms / 1000, min = s / 60, h = min / 60, d = h / 24;
  if (d > 0) return absl::StrCat(d, " d ", h % 24, " h");
  if (h > 0) return absl::StrCat(h, " h ", min % 60, " min");
  if (min > 0) return absl::StrCat(min, " min ", s % 60, " s");
  return absl::StrCat(s, " s");
}

std::string FormatNumber(double value) {
  if (value == 0) return "0";
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value))));
  if (exponent < -4 || exponent > 5) return absl::StrFormat("%.2e", value);
  return absl::StrFormat("%.*f", std::max(0, 2 - exponent), value);
}

std::string FormatCount(uint64_t value) {
  std::string digits = absl::StrCat(value);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string FormatCount(uint64_t value, const char* noun) {
  return absl::StrCat(FormatCount(value), " ", noun, value == 1 ? "" : "s");
}

}  // namespace sluice::cli
