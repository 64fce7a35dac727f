#include "client/cli/options.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/failure.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

using client::NamespaceInfo;

constexpr size_t kMinPrefix = 4;  // hexadecimal digits of a namespace
constexpr std::string_view kUnixPrefix = "unix:";

// What is wrong with a server's address; empty if nothing is. gRPC would take another port for a
// missing or a wrong one.
std::string AddressFault(const std::string& address) {
  if (address.starts_with(kUnixPrefix)) {
    return address.size() > kUnixPrefix.size() ? "" : "no path; write unix:/PATH";
  }
  const auto fault = [&](absl::string_view what) {
    return absl::StrCat("\"", address, "\" has ", what, "; write HOST:PORT");
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.ends_with(']')) return fault("no port");
  const std::string host = address.substr(0, colon), port = address.substr(colon + 1);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (host.empty()) return fault("no host");
  if (!bracketed && host.find(':') != std::string::npos) return fault("several colons");
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool whole = error == std::errc() && end == port.data() + port.size();
  return whole && number >= 1 && number <= 65535 ? "" : fault("a port outside 1..65535");
}

// "0", "1", ..., "lossless".
std::optional<codec::Level> ParseLevel(const std::string& word) {
  if (word == "lossless") return codec::kLossless;
  if (word.size() != 1 || word[0] < '0') return std::nullopt;
  const int number = word[0] - '0';
  if (number >= static_cast<int>(codec::kMaxLossyLevels)) return std::nullopt;
  return static_cast<codec::Level>(number);
}

// Can client::WriteFile write it? A file is written beside its place first.
absl::Status CheckWritable(const std::string& out) {
  std::error_code error;
  const auto type = std::filesystem::status(out, error).type();
  if (type == std::filesystem::file_type::directory) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", out, ": it is a folder"));
  }
  const bool beside =
      type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
  const std::string folder = std::filesystem::path(out).parent_path();
  const std::string written = !beside ? out : folder.empty() ? "." : folder;
  if (access(written.c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", out));
}

const char* MeaningOf(adapt::RecomputeCapability capability) {
  switch (capability) {
    case adapt::RecomputeCapability::kNone:
      return "nothing: all chunks are to be loaded";
    case adapt::RecomputeCapability::kSuffix:
      return "all chunks behind one cut, after the load";
    case adapt::RecomputeCapability::kBidirectional:
      return "chunks from the front, while others are loaded from the back";
    case adapt::RecomputeCapability::kAny:
      return "any chunks, after the load; those at the front take it the least time";
  }
  return "";
}

}  // namespace

absl::Status ExplainUnreachable(const absl::Status& status, const std::string& address) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  const bool silent = absl::IsDeadlineExceeded(status);  // it may be there, and slow
  return WithHint(absl::Status(status.code(), absl::StrCat("no answer: ", status.message())),
                  absl::StrCat("is sluiced running at ", address,
                               silent ? "? if so, it or the link is busy: give it more time"
                                      : "? see --server"));
}

absl::Time ServerOptions::Deadline() const { return absl::Now() + absl::Seconds(timeout_s); }

void AddServer(CLI::App& app, ServerOptions& options) {
  app.add_option("-s,--server", options.address, "Storage server, HOST:PORT or unix:/PATH")
      ->check(AddressFault, "")
      ->capture_default_str();
  app.add_option("--timeout", options.timeout_s, "Longest wait for one answer, s")
      ->check(Within(0.001, 3600))
      ->capture_default_str();
}

CLI::Validator Within(double min, double max) {
  const auto check = [min, max](std::string& text) {
    double value = 0;
    if (!absl::SimpleAtod(text, &value)) return absl::StrCat("\"", text, "\" is not a number");
    if (value >= min && value <= max) return std::string();
    return absl::StrCat(text, " is not in ", min, "..", max);
  };
  return CLI::Validator(check, absl::StrCat(min, "..", max));
}

CLI::Validator WholeWithin(uint64_t min, uint64_t max) {
  const auto check = [min, max](std::string& text) {
    double any = 0;
    if (!absl::SimpleAtod(text, &any)) return absl::StrCat("\"", text, "\" is not a number");
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && value >= min && value <= max) return std::string();
    return absl::StrCat(text, " is not a whole number in ", min, "..", max);
  };
  return CLI::Validator(check, absl::StrCat(min, "..", max));
}

absl::Status CheckOutput(const std::string& out, std::initializer_list<std::string> inputs) {
  if (out.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckWritable(out));
  for (const std::string& input : inputs) {
    std::error_code error;  // such as a file that does not exist
    if (input.empty() || !std::filesystem::equivalent(out, input, error) || error) continue;
    if (!std::filesystem::is_regular_file(out, error)) continue;
    return WithHint(absl::InvalidArgumentError(
                        absl::StrCat(out, ": writing it would replace the input ", input)),
                    "name another file to write");
  }
  return absl::OkStatus();
}

void AddIdentity(CLI::App& app, IdentityOptions& options) {
  app.add_option("-m,--model", options.model, "Model name (default: from the input)");
  app.add_option("--revision", options.revision, "Revision of the weights");
  app.add_option("--adapter", options.adapter, "Adapter (LoRA) on top of the model");
  app.add_option("--tenant", options.tenant, "Tenant that owns the cache");
  app.add_option("--salt", options.salt, "Anything else that must keep caches apart");
  app.add_option("--chunk-tokens", options.chunk_tokens, "Tokens in a chunk")
      ->check(WholeWithin(codec::NamespaceDescriptor::kMinChunkTokens,
                          codec::NamespaceDescriptor::kMaxChunkTokens))
      ->default_str(absl::StrCat(kDefaultChunkTokens));
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
    level = ParseLevel(words.back());
    return level.has_value();
  };
  const auto check = [](const std::string& word) {
    if (ParseLevel(word)) return std::string();
    return absl::StrCat("\"", word, "\" is no level; levels are 0..", codec::kMaxLossyLevels - 1,
                        " or lossless");
  };
  app.add_option("-l,--level", parse, help)->type_name("0..7|lossless")->check(check, "");
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

absl::Status CheckMatched(const client::ChunkSelector& selector, uint64_t matched_chunks) {
  const size_t named =
      std::set<codec::Digest>(selector.chunk_keys.begin(), selector.chunk_keys.end()).size();
  if (matched_chunks >= named) return absl::OkStatus();
  return WithHint(absl::FailedPreconditionError(
                      named == 1 ? std::string("no such chunk")
                                 : absl::StrCat("no such chunk: ", named - matched_chunks, " of ",
                                                named, " that were named")),
                  "list them with: sluice ls NAMESPACE");
}

const char* CapabilityName(adapt::RecomputeCapability capability) {
  switch (capability) {
    case adapt::RecomputeCapability::kNone:
      return "none";
    case adapt::RecomputeCapability::kSuffix:
      return "suffix";
    case adapt::RecomputeCapability::kBidirectional:
      return "bidirectional";
    case adapt::RecomputeCapability::kAny:
      return "any";
  }
  return "unknown";
}

void AddRecompute(CLI::App& app, std::vector<adapt::RecomputeCapability> allowed,
                  adapt::RecomputeCapability& capability) {
  std::string names;  // "none, suffix or any"
  std::string meanings = "\n--recompute, what the engine can compute of a context:";
  for (const auto& each : allowed) {
    const bool last = &each == &allowed.back();
    absl::StrAppend(&names, names.empty() ? "" : last ? " or " : ", ", CapabilityName(each));
    absl::StrAppendFormat(&meanings, "\n  %-14s %s", CapabilityName(each), MeaningOf(each));
  }
  app.footer(app.get_footer() + meanings);
  const auto find = [allowed](const std::string& word) {
    std::optional<adapt::RecomputeCapability> found;
    for (const auto each : allowed) {
      if (word == CapabilityName(each)) found = each;
    }
    return found;
  };
  const auto parse = [&capability, find](const CLI::results_t& words) {
    const auto found = find(words.back());
    capability = found.value_or(capability);
    return found.has_value();
  };
  app.add_option("--recompute", parse,
                 absl::StrCat("What the engine can compute: ", names,
                              " (default: ", CapabilityName(allowed.front()), "); see below"))
      ->type_name("WHAT")
      ->check(
          [find, names](const std::string& word) {
            if (find(word)) return std::string();
            return absl::StrCat("\"", word, "\" is not ", names);
          },
          "");
}

}  // namespace sluice::cli
