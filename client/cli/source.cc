#include "client/cli/source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/decode_context.h"
#include "client/cli/encode_context.h"
#include "client/cli/failure.h"
#include "client/context_input.h"
#include "codec/bytes.h"
#include "codec/container.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

absl::Status NoTokenIds(const std::string& path) {
  return WithHint(absl::InvalidArgumentError(absl::StrCat(
                      path, ": no token_ids in its metadata; chunks are stored under them")),
                  "add the JSON list token_ids to the file's metadata");
}

absl::Status NoFullChunk(const std::string& path, uint32_t num_tokens, uint32_t chunk_tokens) {
  return WithHint(absl::InvalidArgumentError(absl::StrCat(path, ": ", num_tokens,
                                                          " tokens make no full chunk of ",
                                                          chunk_tokens, "; nothing to store")),
                  "smaller chunks: --chunk-tokens N");
}

// The file was encoded already; options that would encode it otherwise contradict it.
absl::Status CheckAgrees(const SourceOptions& options, const codec::ContextFile& file) {
  const auto refuse = [&](absl::string_view what, absl::string_view hint) {
    return WithHint(absl::InvalidArgumentError(absl::StrCat(options.path, ": ", what)), hint);
  };
  const uint32_t chunk_tokens = file.descriptor.chunk_tokens;
  if (options.identity.chunk_tokens.value_or(chunk_tokens) != chunk_tokens) {
    return refuse(absl::StrCat("has chunks of ", chunk_tokens, " tokens, not ",
                               *options.identity.chunk_tokens),
                  "leave out --chunk-tokens, or encode the cache again");
  }
  if (!options.profile.empty() && !file.profile_bytes.empty()) {
    return refuse("has a profile already", "leave out --profile");
  }
  if (options.lossless && !std::ranges::all_of(file.containers, HasLossless)) {
    return refuse("has no lossless level", "encode the cache with --lossless");
  }
  return absl::OkStatus();
}

absl::StatusOr<Source> FromContextFile(const SourceOptions& options) {
  Source source;
  ASSIGN_OR_RETURN(source.file, ReadContextFile(options.path));
  codec::ContextFile& file = source.file;
  RETURN_IF_ERROR(CheckAgrees(options, file));
  source.num_tokens = static_cast<uint32_t>(file.token_ids.size());
  if (file.token_ids.empty()) return NoTokenIds(options.path);
  auto profile = ProfileOf(file, options.profile);
  if (profile.ok()) {
    source.profile = *std::move(profile);
  } else if (!absl::IsNotFound(profile.status())) {  // the server may have it
    return WithPrefix(profile.status(), options.path);
  }
  const size_t num_full = file.token_ids.size() / file.descriptor.chunk_tokens;
  if (file.containers.size() < num_full) {
    return absl::DataLossError(absl::StrCat(options.path, ": has ", file.containers.size(),
                                            " chunks, but tokens for ", num_full));
  }
  file.containers.resize(num_full);
  if (num_full == 0)
    return NoFullChunk(options.path, source.num_tokens, file.descriptor.chunk_tokens);
  codec::NamespaceDescriptor descriptor = file.descriptor;
  Override(options.identity, descriptor);
  if (absl::Status status = Rename(std::move(descriptor), file); !status.ok()) {
    return WithPrefix(status, options.path);
  }
  if (source.profile != nullptr) source.rates.Add(*source.profile, file.containers);
  if (const auto note = source.rates.Note()) source.notes.push_back(*note);
  return source;
}

absl::StatusOr<Source> FromCacheFile(const SourceOptions& options, const ServerOptions* server) {
  ASSIGN_OR_RETURN(const client::ContextInput input, client::ReadContext(options.path));
  if (input.token_ids.empty()) return NoTokenIds(options.path);
  const uint32_t chunk_tokens = options.identity.ChunkTokens();
  if (input.num_tokens < chunk_tokens) {
    return NoFullChunk(options.path, input.num_tokens, chunk_tokens);
  }
  ASSIGN_OR_RETURN(ProfilePtr profile, LoadProfile(options.profile, input.geometry, server));
  ASSIGN_OR_RETURN(auto descriptor, MakeDescriptor(options.identity, input, *profile));
  ASSIGN_OR_RETURN(EncodedContext encoded, EncodeContext({.input = input,
                                                          .profile = *profile,
                                                          .descriptor = descriptor,
                                                          .lossless = options.lossless,
                                                          .last_partial_chunk = false}));
  Source source;
  source.file = std::move(encoded.file);
  source.profile = std::move(profile);
  source.num_tokens = input.num_tokens;
  source.rates = encoded.rates;
  source.notes = std::move(encoded.notes);
  return source;
}

}  // namespace

bool HasLossless(const std::string& container) {
  const auto header = codec::ParseChunkHeader(codec::AsBytes(container));
  return header.ok() && header->LayerOfLevel(codec::kLossless) >= 0;
}

absl::StatusOr<std::string_view> ProfileBytes(const Source& source) {
  if (source.profile != nullptr) return std::string_view(source.profile->bytes());
  return ProfileOf(source.file, "").status();
}

absl::StatusOr<Source> OpenSource(const SourceOptions& options, const ServerOptions* server) {
  auto source =
      IsContextFile(options.path) ? FromContextFile(options) : FromCacheFile(options, server);
  if (!source.ok()) return source;
  const uint32_t chunk_tokens = source->file.descriptor.chunk_tokens;
  if (const uint32_t rest = source->num_tokens % chunk_tokens; rest != 0) {
    source->notes.push_back(absl::StrCat("the last ", rest, " of ", source->num_tokens,
                                         " tokens make no full chunk and are left out"));
  }
  return source;
}

}  // namespace sluice::cli
