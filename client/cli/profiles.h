// The profiles that commands work with: named by a file, by an id, or found by a namespace.
#pragma once

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "client/profile_store.h"
#include "codec/context_file.h"

namespace sluice::cli {

using client::ProfilePtr;

// --profile FILE|ID
CLI::Option* AddProfile(CLI::App& app, std::string& profile);

// The profiles of this user: $XDG_CACHE_HOME/sluice/profiles, else ~/.cache/sluice/profiles; no
// folder if there is no home.
client::ProfileFolder::Config ProfileCache();
// This user's profiles and, unless it is null, those of the server.
std::unique_ptr<client::ProfileStore> OpenProfiles(const ServerOptions* server);

// The id that `text` says: whole, or the start of that of a profile of this user or of the server,
// if there is one.
absl::StatusOr<codec::Digest> ResolveProfileId(const std::string& text,
                                               const ServerOptions* server);
// The profile with this id.
absl::StatusOr<ProfilePtr> GetProfile(const codec::Digest& id, const ServerOptions* server);
// `text` is a file, else an id. `server` may be null: then only this user's profiles are searched.
absl::StatusOr<ProfilePtr> FindProfile(const std::string& text, const ServerOptions* server);
// FindProfile, which must be made for `geometry`; the built-in one if `text` is empty.
absl::StatusOr<ProfilePtr> LoadProfile(const std::string& text, const codec::Geometry& geometry,
                                       const ServerOptions* server);
// Keeps a profile that is not in a context file among this user's, and says so.
void KeepProfile(const ProfilePtr& profile);
// The profile of a context file: its own, else the given one (which must be it), else this user's.
// NotFound with advice if it is nowhere.
absl::StatusOr<ProfilePtr> ProfileOf(const codec::ContextFile& file, const std::string& given);

}  // namespace sluice::cli
