// Any bytes as a configuration file: faults or a configuration, and nothing else.
#include <cstdint>
#include <string_view>

#include "client/node_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto result = sluice::client::ParseNodeConfig(text, "fuzz");
  if (result.faults.empty()) (void)result.config.Faults();
  return 0;
}
