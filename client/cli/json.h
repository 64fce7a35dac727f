// JSON on stdout.
#pragma once

#include <cstdio>
#include <string>

#include "nlohmann/json.hpp"

namespace sluice::cli {

using Json = nlohmann::ordered_json;

// Prints with indentation. Strings that are not UTF-8 are repaired: they may come from hostile
// files.
inline void PrintJson(const Json& json) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

}  // namespace sluice::cli
