// Command-line options that several commands share, so that they have the same names and texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/remote_admin.h"
#include "codec/chunk_key.h"
#include "codec/profile.h"

namespace sluice::cli {

inline constexpr char kDefaultServer[] = "127.0.0.1:7420";

struct ServerOptions {
  std::string address = kDefaultServer;
  double timeout_s = 10;

  absl::Time Deadline() const;
};
// The status; if it says that nothing answered, with advice.
absl::Status ExplainUnreachable(const absl::Status& status, const std::string& address);
void AddServer(CLI::App& app, ServerOptions& options);

// Whose caches: the parts of a namespace besides the profile. What is not given is taken from the
// input file, or else is empty.
struct IdentityOptions {
  std::optional<std::string> model, revision, adapter, tenant, salt;
  uint32_t chunk_tokens = 256;
};
void AddIdentity(CLI::App& app, IdentityOptions& options);
// Overwrites the parts of `descriptor` that were given, except chunk_tokens.
void Override(const IdentityOptions& options, codec::NamespaceDescriptor& descriptor);

void AddJson(CLI::App& app, bool& json);
void AddVerbose(CLI::App& app, bool& verbose);
// "0", "1", ..., "lossless".
void AddLevel(CLI::App& app, std::optional<codec::Level>& level, const std::string& help);

// The one namespace that `text` names: a prefix of its digest, or its model's name. NotFound or
// InvalidArgument (several) otherwise.
absl::StatusOr<client::NamespaceInfo> ResolveNamespace(client::RemoteAdmin& admin,
                                                       const std::string& text,
                                                       absl::Time deadline);
// Chunks as people name them: NAMESPACE, and keys in hexadecimal.
absl::StatusOr<client::ChunkSelector> MakeSelector(client::RemoteAdmin& admin,
                                                   const std::string& name,
                                                   const std::vector<std::string>& keys,
                                                   absl::Time deadline);

}  // namespace sluice::cli
