// sluice profile: shows, gets and lists profiles.
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/options.h"
#include "client/cli/profile_report.h"
#include "client/cli/profiles.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/file_io.h"
#include "codec/bytes.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kShowExamples[] = R"(Examples:
  sluice profile show my-model.profile
  sluice profile show 3fa9 --server 10.0.0.7:7420
  sluice profile show --planes my-model.profile
  sluice profile show --json my-model.profile | jq .groups
Without --server an id is searched among the profiles of this user only.)";

constexpr char kGetExamples[] = R"(Examples:
  sluice profile get 3fa9 --out my-model.profile
  sluice profile get 3fa9 --server 10.0.0.7:7420
Without --out the profile is only kept among those of this user, where every command finds it.)";

constexpr char kLsExamples[] = R"(Examples:
  sluice profile ls
  sluice profile ls --server 10.0.0.7:7420
  sluice profile ls --local)";

struct Options {
  ServerOptions server;
  std::string name, out;
  bool planes = false, local = false, json = false;
  CLI::Option* server_given = nullptr;  // of the parser
};

absl::StatusOr<ExitCode> Show(const Options& options) {
  const bool ask = options.server_given->count() > 0;
  ASSIGN_OR_RETURN(const ProfilePtr profile,
                   FindProfile(options.name, ask ? &options.server : nullptr));
  if (options.json) {
    PrintJson(ToJson(*profile));
  } else {
    PrintProfile(*profile, options.planes);
  }
  return kOk;
}

absl::StatusOr<ExitCode> Get(const Options& options) {
  RETURN_IF_ERROR(CheckOutput(options.out, {}));
  ASSIGN_OR_RETURN(const codec::Digest id, ResolveProfileId(options.name, &options.server));
  ASSIGN_OR_RETURN(const ProfilePtr profile, GetProfile(id, &options.server));
  std::string place = options.out;
  if (place.empty()) {
    client::ProfileFolder folder(ProfileCache());
    const absl::Status kept = folder.Write(id, profile->bytes());
    if (!kept.ok()) return WithHint(kept, "name a file with --out");
    place = absl::StrCat(folder.path(), "/", codec::DigestHex(id));
  } else {
    const std::span<const std::byte> parts[] = {codec::AsBytes(profile->bytes())};
    RETURN_IF_ERROR(client::WriteFile(place, parts));
  }
  const uint64_t bytes = profile->bytes().size();
  if (options.json) {
    PrintJson({{"id", codec::DigestHex(id)}, {"bytes", bytes}, {"out", place}});
  } else {
    std::printf("%s: %s\n", place.c_str(), FormatBytes(static_cast<double>(bytes)).c_str());
  }
  return kOk;
}

struct Listed {
  uint64_t bytes = 0;
  std::vector<std::string> users;  // models of the namespaces
};

absl::StatusOr<std::map<codec::Digest, Listed>> List(const Options& options) {
  std::map<codec::Digest, Listed> listed;
  if (options.local) {
    for (const auto& file : client::ProfileFolder(ProfileCache()).List()) {
      listed[file.id].bytes = file.bytes;
    }
    return listed;
  }
  const auto admin = client::RemoteAdmin::Create(options.server.address);
  const auto all = admin->ListNamespaces(options.server.Deadline());
  if (!all.ok()) return ExplainUnreachable(all.status(), options.server.address);
  for (const client::NamespaceInfo& info : *all) {
    Listed& profile = listed[info.descriptor.profile_id];
    profile.bytes = info.profile_bytes;
    profile.users.push_back(info.descriptor.model);
  }
  return listed;
}

absl::StatusOr<ExitCode> Ls(const Options& options) {
  ASSIGN_OR_RETURN(const auto listed, List(options));
  if (options.json) {
    Json list = Json::array();
    for (const auto& [id, profile] : listed) {
      list.push_back(
          {{"id", codec::DigestHex(id)}, {"bytes", profile.bytes}, {"models", profile.users}});
    }
    PrintJson({{"profiles", list}});
    return kOk;
  }
  Table table({{"profile", Align::kLeft}, {"bytes"}, {"models", Align::kLeft}});
  for (const auto& [id, profile] : listed) {
    std::string models = profile.users.empty() ? "" : profile.users.front();
    if (profile.users.size() > 1) {
      absl::StrAppend(&models, " and ", FormatCount(profile.users.size() - 1, "other namespace"));
    }
    table.Add({codec::DigestHex(id),
               profile.bytes == 0 ? "lost" : FormatBytes(static_cast<double>(profile.bytes)),
               models});
  }
  table.Print();
  return kOk;
}

}  // namespace

void AddProfileCommands(CLI::App& app, Run& run) {
  CLI::App* profile = app.add_subcommand("profile", "Profiles: profile show, get, ls");
  profile->require_subcommand(1);

  auto show = std::make_shared<Options>();
  CLI::App* sub =
      AddCommand(*profile, run, "show", "Show what is in a profile", kShowExamples, show, Show);
  sub->add_option("PROFILE", show->name, "A file, or an id or the start of one")->required();
  AddServer(*sub, show->server);
  sub->add_flag("--planes", show->planes, "List the planes and the rotary tables too");
  show->server_given = sub->get_option("--server");
  AddJson(*sub, show->json);

  auto get = std::make_shared<Options>();
  sub = AddCommand(*profile, run, "get", "Get a profile from a server", kGetExamples, get, Get);
  sub->add_option("ID", get->name, "The profile's id, or the start of it")->required();
  sub->add_option("-o,--out", get->out, "File to write");
  AddServer(*sub, get->server);
  AddJson(*sub, get->json);

  auto ls = std::make_shared<Options>();
  sub = AddCommand(*profile, run, "ls", "List the profiles of a server", kLsExamples, ls, Ls);
  AddServer(*sub, ls->server);
  sub->add_flag("--local", ls->local, "List those of this user instead")->excludes("--server");
  AddJson(*sub, ls->json);
}

}  // namespace sluice::cli
