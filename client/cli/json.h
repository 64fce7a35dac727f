// JSON on stdout.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "nlohmann/json.hpp"

namespace sluice::cli {

using Json = nlohmann::ordered_json;

// Numbers that are not whole get nine significant digits: microseconds of minutes.
inline void RoundNumbers(Json& json) {
  for (Json& value : json) {
    if (value.is_structured()) {
      RoundNumbers(value);
    } else if (value.is_number_float()) {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.9g", value.get<double>());
      value = std::strtod(digits, nullptr);
    }
  }
}

// Prints with indentation. Strings that are not UTF-8 are repaired: they may come from hostile
// files.
inline void PrintJson(Json json) {
  RoundNumbers(json);
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

}  // namespace sluice::cli
