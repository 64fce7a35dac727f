// Encoded contexts from whatever a user names: a cache file, which is encoded here, or a .sluice
// file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "client/cli/profiles.h"
#include "client/cli/rate_note.h"
#include "codec/context_file.h"

namespace sluice::cli {

struct SourceOptions {
  std::string path;
  std::string profile;  // FILE or ID; empty: the built-in one, or that of the .sluice file
  bool lossless = false;
  IdentityOptions identity;
};

struct Source {
  codec::ContextFile file;  // full chunks only, with their keys
  ProfilePtr profile;       // null if it is neither in the .sluice file nor on this host
  uint32_t num_tokens = 0;  // of the context, with those that make no full chunk
  RateSummary rates;
  std::vector<std::string> notes;  // for the user
};

bool HasLossless(const std::string& container);

// InvalidArgument if there are no token ids, which keys are made of, or no full chunk. A profile
// that is named by its id may come from `server`, which may be null.
absl::StatusOr<Source> OpenSource(const SourceOptions& options, const ServerOptions* server);
// The bytes of the source's profile, or what to do about there being none.
absl::StatusOr<std::string_view> ProfileBytes(const Source& source);

}  // namespace sluice::cli
