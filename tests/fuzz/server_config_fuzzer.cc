// The server's configuration file: any text gives a configuration or faults.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "server/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const sluice::server::ConfigFile file = sluice::server::ParseConfig(text, "fuzz.toml");
  // What was accepted stays within its ranges.
  if (sluice::server::AllFaults(file).empty()) {
    const sluice::server::Config& config = file.config;
    if (config.limits.max_frame_bytes < 4096 || config.data_dir.empty()) std::abort();
  }
  return 0;
}
