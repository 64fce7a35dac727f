// What `fetch` wants: which chunks of which namespace, and how to decode them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapt/load_types.h"
#include "client/cli/options.h"
#include "client/cli/output_metadata.h"
#include "client/cli/profiles.h"
#include "codec/chunk_key.h"
#include "codec/profile.h"

namespace sluice::cli {

struct FetchOptions {
  ServerOptions server;
  std::string node;  // socket of the daemon to load through; empty for none
  IdentityOptions identity;
  std::string name_space;   // NAMESPACE, if the identity is not enough
  std::string like;         // a cache file: token ids, geometry and identity
  std::string tokens_file;  // or only token ids; the server knows the rest
  std::string profile;      // FILE or ID; empty: that of the namespace, else the built-in one
  std::string out;
  std::string record;  // of the load, to be written; empty for none
  std::string check;   // the original; empty for none
  uint32_t slo_ms = 30'000;
  std::optional<codec::Level> level;
  adapt::RecomputeCapability capability = adapt::RecomputeCapability::kNone;
  bool json = false;
};

struct FetchPlan {
  codec::NamespaceDescriptor descriptor;
  ProfilePtr profile;
  std::vector<uint32_t> token_ids;
  Metadata metadata;  // of the file that the context is like

  uint32_t num_chunks() const {
    return static_cast<uint32_t>(token_ids.size() / descriptor.chunk_tokens);
  }
};

// Reads the files and, where the profile is not known, asks the server.
absl::StatusOr<FetchPlan> PlanFetch(const FetchOptions& options);

}  // namespace sluice::cli
