// Encoded contexts from whatever a user names: a cache file, which is encoded here, or a .sluice
// file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "codec/context_file.h"

namespace sluice::cli {

struct SourceOptions {
  std::string path;
  std::string profile;  // of a cache file; empty for the built-in one
  bool lossless = false;
  IdentityOptions identity;
};

struct Source {
  codec::ContextFile file;         // full chunks only, with their keys
  uint32_t num_tokens = 0;         // of the context, with those that make no full chunk
  std::vector<std::string> notes;  // for the user
};

bool HasLossless(const std::string& container);

// InvalidArgument if there are no token ids, which keys are made of, or no full chunk.
absl::StatusOr<Source> OpenSource(const SourceOptions& options);

}  // namespace sluice::cli
