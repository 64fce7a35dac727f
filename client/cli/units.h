// Numbers as people read them: three significant digits and a decimal unit.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::cli {

std::string FormatBytes(double bytes);       // "1.23 MB"
std::string FormatRate(double bytes_per_s);  // "1.23 MB/s"; "-" if nothing was measured
std::string FormatMs(double ms);             // "12.3 ms", "2.05 s"
std::string FormatUs(int64_t us);            // the same of microseconds: "12.3 ms"
std::string FormatAge(uint64_t ms);          // "3 h 12 min"
std::string FormatNumber(double value);      // three significant digits, no unit
std::string FormatCount(uint64_t value, const char* noun);  // "1 chunk", "1,234 chunks"
std::string FormatCount(uint64_t value);                    // "1,234,567"

}  // namespace sluice::cli
