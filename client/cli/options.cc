#include "client/cli/options.h"

#include <charconv>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/failure.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

using client::NamespaceInfo;

constexpr size_t kMinPrefix = 4;  // hexadecimal digits of a namespace

}  // namespace

absl::Status ExplainUnreachable(const absl::Status& status, const std::string& address) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  return WithHint(absl::Status(status.code(), absl::StrCat("no answer: ", status.message())),
                  absl::StrCat("is sluiced running at ", address, "? see --server"));
}

absl::Time ServerOptions::Deadline() const { return absl::Now() + absl::Seconds(timeout_s); }

void AddServer(CLI::App& app, ServerOptions& options) {
  app.add_option("-s,--server", options.address, "Storage server, HOST:PORT or unix:/PATH")
      ->capture_default_str();
  app.add_option("--timeout", options.timeout_s, "Longest wait for one answer, s")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
}

void AddIdentity(CLI::App& app, IdentityOptions& options) {
  app.add_option("-m,--model", options.model, "Model name (default: from the input)");
  app.add_option("--revision", options.revision, "Revision of the weights");
  app.add_option("--adapter", options.adapter, "Adapter (LoRA) on top of the model");
  app.add_option("--tenant", options.tenant, "Tenant that owns the cache");
  app.add_option("--salt", options.salt, "Anything else that must keep caches apart");
  app.add_option("--chunk-tokens", options.chunk_tokens, "Tokens in a chunk")
      ->check(CLI::Range(codec::NamespaceDescriptor::kMinChunkTokens,
                         codec::NamespaceDescriptor::kMaxChunkTokens))
      ->capture_default_str();
}

void Override(const IdentityOptions& options, codec::NamespaceDescriptor& descriptor) {
  if (options.model) descriptor.model = *options.model;
  if (options.revision) descriptor.revision = *options.revision;
  if (options.adapter) descriptor.adapter = *options.adapter;
  if (options.tenant) descriptor.tenant = *options.tenant;
  if (options.salt) descriptor.salt = *options.salt;
}

void AddJson(CLI::App& app, bool& json) { app.add_flag("--json", json, "Print JSON"); }

void AddVerbose(CLI::App& app, bool& verbose) {
  app.add_flag("-v,--verbose", verbose, "Say more about the input");
}

void AddLevel(CLI::App& app, std::optional<codec::Level>& level, const std::string& help) {
  const auto parse = [&level](const CLI::results_t& words) {
    const std::string& word = words.back();
    unsigned number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool whole = error == std::errc() && end == word.data() + word.size();
    if (word == "lossless") {
      level = codec::kLossless;
    } else if (whole && number < codec::kMaxLossyLevels) {
      level = static_cast<codec::Level>(number);
    } else {
      return false;
    }
    return true;
  };
  app.add_option("-l,--level", parse, help)->type_name("0..7|lossless");
}

absl::StatusOr<NamespaceInfo> ResolveNamespace(client::RemoteAdmin& admin, const std::string& text,
                                               absl::Time deadline) {
  auto all = admin.ListNamespaces(deadline);
  if (!all.ok()) return ExplainUnreachable(all.status(), admin.address());
  std::vector<NamespaceInfo> found;
  for (const NamespaceInfo& info : *all) {
    const bool prefix =
        text.size() >= kMinPrefix && codec::DigestHex(info.namespace_digest).starts_with(text);
    if (prefix || info.descriptor.model == text) found.push_back(info);
  }
  if (found.empty()) {
    return WithHint(absl::NotFoundError(absl::StrCat("no namespace is named \"", text, "\"")),
                    absl::StrCat("list them with: sluice ls --server ", admin.address()));
  }
  if (found.size() > 1) {
    std::string names;
    for (const auto& info : found) {
      absl::StrAppend(&names, " ", codec::DigestHex(info.namespace_digest).substr(0, 12));
    }
    return WithHint(absl::InvalidArgumentError(
                        absl::StrCat("\"", text, "\" names ", found.size(), " namespaces:", names)),
                    "give more of the digest");
  }
  return found.front();
}

absl::StatusOr<client::ChunkSelector> MakeSelector(client::RemoteAdmin& admin,
                                                   const std::string& name,
                                                   const std::vector<std::string>& keys,
                                                   absl::Time deadline) {
  client::ChunkSelector selector;
  ASSIGN_OR_RETURN(const NamespaceInfo info, ResolveNamespace(admin, name, deadline));
  selector.namespace_digest = info.namespace_digest;
  for (const std::string& key : keys) {
    auto digest = codec::DigestFromHex(key);
    if (!digest.ok()) return WithPrefix(digest.status(), absl::StrCat("--chunk ", key));
    selector.chunk_keys.push_back(*digest);
  }
  return selector;
}

}  // namespace sluice::cli
