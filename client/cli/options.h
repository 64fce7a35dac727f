// Command-line options that several commands share, so that they have the same names and texts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "adapt/load_types.h"
#include "client/remote_admin.h"
#include "codec/chunk_key.h"
#include "codec/profile.h"

namespace sluice::cli {

inline constexpr char kDefaultServer[] = "127.0.0.1:7420";
inline constexpr uint32_t kDefaultChunkTokens = 256;

struct ServerOptions {
  std::string address = kDefaultServer;
  double timeout_s = 10;

  absl::Time Deadline() const;
};
// The status; if it says that nothing answered, with advice.
absl::Status ExplainUnreachable(const absl::Status& status, const std::string& address);
void AddServer(CLI::App& app, ServerOptions& options);

// Accepts numbers in min..max; refuses others in words for people.
CLI::Validator Within(double min, double max);
CLI::Validator WholeWithin(uint64_t min, uint64_t max);

// Before any work: can `out` be written? InvalidArgument if that would replace one of the files
// that are read. Empty paths count for nothing.
absl::Status CheckOutput(const std::string& out, std::initializer_list<std::string> inputs);

// Whose caches: the parts of a namespace besides the profile. What is not given is taken from the
// input file, or else is empty.
struct IdentityOptions {
  std::optional<std::string> model, revision, adapter, tenant, salt;
  std::optional<uint32_t> chunk_tokens;

  uint32_t ChunkTokens() const { return chunk_tokens.value_or(kDefaultChunkTokens); }
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
// FailedPrecondition if the selector names chunks and the server does not have all of them.
absl::Status CheckMatched(const client::ChunkSelector& selector, uint64_t matched_chunks);

const char* CapabilityName(adapt::RecomputeCapability capability);
// --recompute WHAT, one of these, of which the first is the default; explains them below the help.
void AddRecompute(CLI::App& app, std::vector<adapt::RecomputeCapability> allowed,
                  adapt::RecomputeCapability& capability);

}  // namespace sluice::cli
