#include "client/cli/fetch_plan.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/encode_context.h"
#include "client/cli/failure.h"
#include "client/cli/node_commands.h"
#include "client/context_input.h"
#include "client/file_io.h"
#include "client/remote_admin.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

using client::NamespaceInfo;

constexpr uint64_t kMaxTokensFileBytes = uint64_t{256} << 20;

// The one profile with which the server has namespaces like `descriptor`, which then gets its id;
// `builtin` if the server has a namespace with that, or none, or several, or does not answer.
absl::StatusOr<ProfilePtr> ProfileOfNamespace(const ServerOptions& server,
                                              const codec::Geometry& geometry, ProfilePtr builtin,
                                              codec::NamespaceDescriptor& descriptor) {
  const auto all = client::RemoteAdmin::Create(server.address)->ListNamespaces(server.Deadline());
  if (!all.ok()) return builtin;  // the load says so
  std::vector<codec::Digest> found;
  codec::NamespaceDescriptor wanted = descriptor;
  for (const NamespaceInfo& info : *all) {
    wanted.profile_id = info.descriptor.profile_id;
    if (info.descriptor == wanted) found.push_back(wanted.profile_id);
  }
  if (found.size() != 1 || found.front() == builtin->id()) return builtin;
  ASSIGN_OR_RETURN(ProfilePtr profile, GetProfile(found.front(), &server));
  if (profile->geometry() != geometry) return builtin;
  descriptor.profile_id = profile->id();
  return profile;
}

absl::StatusOr<FetchPlan> PlanLike(const FetchOptions& options) {
  ASSIGN_OR_RETURN(client::ContextInput input, client::ReadContext(options.like));
  if (input.token_ids.empty()) {
    return WithHint(absl::InvalidArgumentError(absl::StrCat(
                        options.like, ": no token_ids in its metadata; chunks are named by them")),
                    "give them with --tokens FILE");
  }
  ServerOptions server = options.server;
  if (!options.node.empty() && !options.profile.empty()) {
    ASSIGN_OR_RETURN(server, ServerOfNode(options.node, options.server.timeout_s));
  }
  ASSIGN_OR_RETURN(ProfilePtr profile, LoadProfile(options.profile, input.geometry, &server));
  ASSIGN_OR_RETURN(auto descriptor, MakeDescriptor(options.identity, input, *profile));
  if (options.profile.empty() && options.node.empty()) {
    ASSIGN_OR_RETURN(profile, ProfileOfNamespace(server, input.geometry, profile, descriptor));
  }
  Metadata metadata = input.file.metadata();
  return FetchPlan{std::move(descriptor), std::move(profile), std::move(input.token_ids),
                   std::move(metadata)};
}

// The namespace is chosen; what else was said about it must be true.
absl::Status CheckAgrees(const IdentityOptions& identity,
                         const codec::NamespaceDescriptor& descriptor) {
  codec::NamespaceDescriptor wanted = descriptor;
  Override(identity, wanted);
  wanted.chunk_tokens = identity.chunk_tokens.value_or(descriptor.chunk_tokens);
  if (wanted.chunk_tokens != descriptor.chunk_tokens) {
    return WithHint(absl::InvalidArgumentError(absl::StrCat("the namespace has chunks of ",
                                                            descriptor.chunk_tokens,
                                                            " tokens, not ", wanted.chunk_tokens)),
                    "leave out --chunk-tokens");
  }
  if (wanted == descriptor) return absl::OkStatus();
  return WithHint(absl::InvalidArgumentError(
                      "--namespace names one namespace, and --model or the like another"),
                  "leave out one of them");
}

// The namespace that the options describe. The profile is not among them, so there may be several.
absl::StatusOr<NamespaceInfo> FindNamespace(client::RemoteAdmin& admin,
                                            const FetchOptions& options) {
  const std::string& address = options.server.address;
  if (!options.name_space.empty()) {
    ASSIGN_OR_RETURN(NamespaceInfo info,
                     ResolveNamespace(admin, options.name_space, options.server.Deadline()));
    RETURN_IF_ERROR(CheckAgrees(options.identity, info.descriptor));
    return info;
  }
  codec::NamespaceDescriptor wanted;
  wanted.chunk_tokens = options.identity.ChunkTokens();
  Override(options.identity, wanted);
  if (wanted.model.empty()) {
    return WithHint(
        absl::InvalidArgumentError("token ids alone do not say of which model the context is"),
        "give --model NAME or --namespace DIGEST");
  }
  auto all = admin.ListNamespaces(options.server.Deadline());
  if (!all.ok()) return ExplainUnreachable(all.status(), address);
  std::vector<NamespaceInfo> found;
  for (const NamespaceInfo& info : *all) {
    wanted.profile_id = info.descriptor.profile_id;
    if (info.descriptor == wanted) found.push_back(info);
  }
  if (found.size() == 1) return found.front();
  const std::string whose =
      absl::StrCat("model \"", wanted.model, "\" with chunks of ", wanted.chunk_tokens, " tokens");
  if (found.empty()) {
    return WithHint(absl::NotFoundError(absl::StrCat("the server has nothing of ", whose)),
                    absl::StrCat("compare with: sluice ls --json --server ", address));
  }
  return WithHint(absl::InvalidArgumentError(
                      absl::StrCat("the server has ", found.size(), " namespaces of ", whose)),
                  "choose one with --namespace DIGEST");
}

absl::StatusOr<FetchPlan> PlanTokens(const FetchOptions& options) {
  ASSIGN_OR_RETURN(const std::string text,
                   client::ReadFile(options.tokens_file, kMaxTokensFileBytes));
  auto token_ids = client::ParseTokenIds(text);
  if (!token_ids.ok()) return WithPrefix(token_ids.status(), options.tokens_file);
  const auto admin = client::RemoteAdmin::Create(options.server.address);
  ASSIGN_OR_RETURN(NamespaceInfo info, FindNamespace(*admin, options));
  ASSIGN_OR_RETURN(ProfilePtr profile, GetProfile(info.descriptor.profile_id, &options.server));
  return FetchPlan{std::move(info.descriptor), std::move(profile), *std::move(token_ids), {}};
}

}  // namespace

absl::StatusOr<FetchPlan> PlanFetch(const FetchOptions& options) {
  RETURN_IF_ERROR(CheckOutput(options.out,
                              {options.like, options.check, options.tokens_file, options.profile}));
  RETURN_IF_ERROR(CheckOutput(options.record,
                              {options.like, options.check, options.tokens_file, options.profile}));
  if (!options.node.empty() && !options.record.empty()) {
    return WithHint(
        absl::InvalidArgumentError("--record: the daemon keeps the records of its loads"),
        "set node.record_dir in its configuration, or load with --server HOST:PORT");
  }
  if (options.like.empty() == options.tokens_file.empty()) {
    return WithHint(absl::InvalidArgumentError("give either --like or --tokens"),
                    "try: sluice fetch --help");
  }
  if (!options.node.empty() && options.like.empty()) {
    return WithHint(absl::InvalidArgumentError("with --node the shapes must be known"),
                    "give --like FILE");
  }
  auto plan = options.like.empty() ? PlanTokens(options) : PlanLike(options);
  if (!plan.ok() || plan->num_chunks() > 0) return plan;
  return WithHint(
      absl::InvalidArgumentError(absl::StrCat(
          plan->token_ids.size(), " tokens make no full chunk of ", plan->descriptor.chunk_tokens)),
      "only full chunks are stored; see --chunk-tokens");
}

}  // namespace sluice::cli
