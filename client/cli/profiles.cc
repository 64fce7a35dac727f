#include "client/cli/profiles.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/decode_context.h"
#include "client/cli/failure.h"
#include "client/cli/units.h"
#include "client/file_io.h"
#include "client/profile_geometry.h"
#include "codec/bytes.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kFileOrId[] = "give a profile's file, or an id as sluice profile ls shows them";
constexpr size_t kIdDigits = 64;
constexpr size_t kMinPrefix = 4;
// Profiles of a command stay in its hands, so no memory is needed for others.
constexpr uint64_t kMemoryBytes = 0;

bool IsHex(const std::string& text) {
  return std::ranges::all_of(text, [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

// Ids of this user's and the server's profiles.
absl::StatusOr<std::set<codec::Digest>> KnownIds(const ServerOptions* server) {
  std::set<codec::Digest> ids;
  for (const auto& file : client::ProfileFolder(ProfileCache()).List()) ids.insert(file.id);
  if (server == nullptr) return ids;
  auto all = client::RemoteAdmin::Create(server->address)->ListNamespaces(server->Deadline());
  if (!all.ok()) return ExplainUnreachable(all.status(), server->address);
  for (const client::NamespaceInfo& info : *all) ids.insert(info.descriptor.profile_id);
  return ids;
}

std::string WhereToLook(const ServerOptions* server) {
  return server == nullptr
             ? "get it from its server: sluice profile get ID --server HOST:PORT --out FILE"
             : absl::StrCat("see what there is: sluice profile ls --server ", server->address);
}

absl::StatusOr<ProfilePtr> ReadProfile(const std::string& path) {
  auto bytes = client::ReadFile(path, client::kMaxProfileBytes);
  if (!bytes.ok()) return WithHint(bytes.status(), kFileOrId);
  if (!IsProfile(*bytes)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a profile"));
  auto profile = codec::Profile::Parse(*std::move(bytes));
  if (absl::IsUnimplemented(profile.status())) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", profile.status().message()));
  }
  if (!profile.ok()) return WithPrefix(profile.status(), path);
  return std::make_shared<const codec::Profile>(*std::move(profile));
}

}  // namespace

CLI::Option* AddProfile(CLI::App& app, std::string& profile) {
  return app
      .add_option("-p,--profile", profile,
                  "Profile of the model: a file, or an id (default: built in)")
      ->type_name("FILE|ID");
}

client::ProfileFolder::Config ProfileCache() {
  client::ProfileFolder::Config config;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && cache[0] == '/') {  // others are to be ignored
    config.path = absl::StrCat(cache, "/sluice/profiles");
  } else if (home != nullptr && home[0] == '/') {
    config.path = absl::StrCat(home, "/.cache/sluice/profiles");
  }
  return config;
}

std::unique_ptr<client::ProfileStore> OpenProfiles(const ServerOptions* server) {
  client::ProfileStore::Config config;
  config.folder = ProfileCache();
  config.memory_bytes = kMemoryBytes;
  config.threads = 1;
  std::shared_ptr<client::RemoteStore> store;
  if (server != nullptr) store = client::RemoteStore::Create(server->address);
  return std::make_unique<client::ProfileStore>(std::move(store), std::move(config));
}

absl::StatusOr<codec::Digest> ResolveProfileId(const std::string& text,
                                               const ServerOptions* server) {
  if (text.size() < kMinPrefix || text.size() > kIdDigits || !IsHex(text)) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrCat("profile \"", text, "\": no such file, and no id")),
        kFileOrId);
  }
  if (text.size() == kIdDigits) return codec::DigestFromHex(text);
  ASSIGN_OR_RETURN(const std::set<codec::Digest> ids, KnownIds(server));
  std::vector<codec::Digest> found;
  for (const codec::Digest& id : ids) {
    if (codec::DigestHex(id).starts_with(absl::AsciiStrToLower(text))) found.push_back(id);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return WithHint(absl::NotFoundError(absl::StrCat("no profile's id begins with ", text)),
                    WhereToLook(server));
  }
  return WithHint(
      absl::InvalidArgumentError(absl::StrCat(found.size(), " profiles' ids begin with ", text)),
      "give more of the id");
}

absl::StatusOr<ProfilePtr> GetProfile(const codec::Digest& id, const ServerOptions* server) {
  auto profile = OpenProfiles(server)->Get(id, absl::Now() + client::kMaxCallTime);
  if (absl::IsNotFound(profile.status())) {
    return WithHint(profile.status(), WhereToLook(server));
  }
  if (absl::IsFailedPrecondition(profile.status())) {
    return absl::InvalidArgumentError(profile.status().message());
  }
  if (!profile.ok() && server != nullptr) {
    return ExplainUnreachable(profile.status(), server->address);
  }
  return profile;
}

absl::StatusOr<ProfilePtr> FindProfile(const std::string& text, const ServerOptions* server) {
  std::error_code error;
  if (std::filesystem::exists(text, error) || text.find('/') != std::string::npos) {
    return ReadProfile(text);
  }
  ASSIGN_OR_RETURN(const codec::Digest id, ResolveProfileId(text, server));
  return GetProfile(id, server);
}

absl::StatusOr<ProfilePtr> LoadProfile(const std::string& text, const codec::Geometry& geometry,
                                       const ServerOptions* server) {
  if (text.empty()) {
    ASSIGN_OR_RETURN(codec::Profile profile, codec::Profile::Builtin(geometry));
    return std::make_shared<const codec::Profile>(std::move(profile));
  }
  ASSIGN_OR_RETURN(ProfilePtr profile, FindProfile(text, server));
  const absl::Status same = client::CheckSameGeometry(profile->geometry(), geometry);
  if (same.ok()) return profile;
  return WithHint(WithPrefix(same, text), absl::StrCat("compare with: sluice profile show ", text));
}

void KeepProfile(const ProfilePtr& profile) {
  const std::string size = FormatBytes(static_cast<double>(profile->bytes().size()));
  client::ProfileFolder folder(ProfileCache());
  const absl::Status kept = folder.Write(profile->id(), profile->bytes());
  Note(kept.ok()
           ? absl::StrCat("the profile (", size, ") is not in the file; it is kept in ",
                          folder.path())
           : absl::StrCat("the profile (", size, ") is not in the file; decode with --profile ",
                          "(not kept here: ", kept.message(), ")"));
}

absl::StatusOr<ProfilePtr> ProfileOf(const codec::ContextFile& file, const std::string& given) {
  const codec::Digest& id = file.descriptor.profile_id;
  ProfilePtr profile;
  if (!file.profile_bytes.empty()) {
    auto parsed = codec::Profile::Parse(codec::AsBytes(file.profile_bytes));
    if (!parsed.ok()) return WithPrefix(parsed.status(), "profile");
    profile = std::make_shared<const codec::Profile>(*std::move(parsed));
    if (profile->id() != id) return absl::DataLossError("profile is not the namespace's");
  } else if (!given.empty()) {
    ASSIGN_OR_RETURN(profile, FindProfile(given, nullptr));
    if (profile->id() != id) {
      return WithHint(absl::InvalidArgumentError(absl::StrCat(
                          given, " is not the profile that the file was encoded with")),
                      absl::StrCat("that is ", codec::DigestHex(id)));
    }
  } else {
    auto found = GetProfile(id, nullptr);
    if (!absl::IsNotFound(found.status())) return found;
    const std::string hex = codec::DigestHex(id);
    return WithHint(absl::NotFoundError(absl::StrCat(
                        "profile ", hex, " is neither in the file nor in ", ProfileCache().path)),
                    absl::StrCat("give it with --profile FILE, or get it: sluice profile get ", hex,
                                 " --server HOST:PORT"));
  }
  return profile;
}

}  // namespace sluice::cli
