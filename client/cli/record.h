// Writes records of loads.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/load_record.h"

namespace sluice::cli {

extern const char kProgram[];  // name and version

// To a file, as of this program.
absl::Status WriteRecord(const std::string& path, client::LoadRecord record);

}  // namespace sluice::cli
