// From a cache in memory to encoded chunks with their keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "client/cli/rate_note.h"
#include "client/context_input.h"
#include "codec/context_file.h"
#include "codec/encoder.h"
#include "codec/profile.h"

namespace sluice::cli {

// Larger profiles are not put into context files, which name them anyway.
inline constexpr size_t kMaxEmbeddedProfileBytes = 1 << 20;

// The namespace of an input, with what the options overwrite.
absl::StatusOr<codec::NamespaceDescriptor> MakeDescriptor(const IdentityOptions& options,
                                                          const client::ContextInput& input,
                                                          const codec::Profile& profile);

// What a user should know: planes with NaN or Inf are kept bit-exact, keys may not be rotated.
std::vector<std::string> InputNotes(const client::ContextInput& input);

struct EncodeRequest {
  const client::ContextInput& input;
  const codec::Profile& profile;
  codec::NamespaceDescriptor descriptor;
  bool lossless = false;
  bool last_partial_chunk = true;  // or leave it out
};

struct EncodedContext {
  codec::ContextFile file;
  std::vector<std::vector<codec::LevelReport>> reports;  // of each chunk
  RateSummary rates;
  std::vector<std::string> notes;  // such as planes with NaN, or an unusual rate
};

// Encodes all chunks, on several threads. Chunks of an input without token ids have keys of zeros.
absl::StatusOr<EncodedContext> EncodeContext(const EncodeRequest& request);

// All chunks of a context as one: bytes add up, errors are the largest or the mean.
std::vector<codec::LevelReport> Summarise(const EncodedContext& context);

// Gives the context another namespace: the chunks keep their bytes except for the identity in their
// headers. InvalidArgument if it has no token ids and a key would be needed.
absl::Status Rename(codec::NamespaceDescriptor descriptor, codec::ContextFile& file);

}  // namespace sluice::cli
