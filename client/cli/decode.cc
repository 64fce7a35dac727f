// sluice decode: a .sluice file becomes a cache in a safetensors file.
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/decode_context.h"
#include "client/cli/json.h"
#include "client/cli/options.h"
#include "client/cli/output_metadata.h"
#include "client/cli/profiles.h"
#include "client/cli/units.h"
#include "client/context_input.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice decode cache.sluice cache.safetensors
  sluice decode --level 0 cache.sluice coarse.safetensors
  sluice decode --level lossless cache.sluice same.safetensors
The metadata of the original is restored; sluice_level says which level was decoded.)";

struct Options {
  std::string in, out, profile;
  std::optional<codec::Level> level;
  bool json = false;
};

absl::StatusOr<ExitCode> Decode(const Options& options) {
  RETURN_IF_ERROR(CheckOutput(options.out, {options.in, options.profile}));
  ASSIGN_OR_RETURN(const codec::ContextFile file, ReadContextFile(options.in));
  const auto found = ProfileOf(file, options.profile);
  if (!found.ok()) return WithPrefix(found.status(), options.in);
  const codec::Profile& profile = **found;
  const codec::Level level = options.level.value_or(DefaultLevel(profile));
  auto planes = DecodeContext(file, profile, level);
  if (!planes.ok()) return WithPrefix(planes.status(), options.in);

  Metadata metadata = file.metadata;
  CompleteMetadata(file.descriptor, profile.geometry(), metadata);
  if (!file.token_ids.empty()) metadata["token_ids"] = client::FormatTokenIds(file.token_ids);
  metadata["sluice_level"] = codec::LevelName(level);
  const client::TokenRange all[] = {{0, planes->num_tokens()}};
  RETURN_IF_ERROR(planes->Save(options.out, all, metadata));
  if (options.json) {
    const Json report = {{"out", options.out},
                         {"level", codec::LevelName(level)},
                         {"chunks", file.containers.size()},
                         {"tokens", planes->num_tokens()}};
    PrintJson(report);
    return kOk;
  }
  std::printf("%s: level %s, %s, %u tokens\n", options.out.c_str(), codec::LevelName(level).c_str(),
              FormatCount(file.containers.size(), "chunk").c_str(), planes->num_tokens());
  return kOk;
}

}  // namespace

void AddDecode(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = AddCommand(app, run, "decode", "Decode a .sluice file at one level", kExamples,
                             options, Decode);
  sub->add_option("IN", options->in, "Encoded context, .sluice")->required();
  sub->add_option("OUT", options->out, "Cache, safetensors")->required();
  AddLevel(*sub, options->level, "Level (default: the finest lossy one)");
  AddProfile(*sub, options->profile)
      ->description("Profile of the file, if it is not inside (default: this user's)");
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
