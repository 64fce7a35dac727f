// sluice encode: a cache in a safetensors file becomes a .sluice file.
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/encode_context.h"
#include "client/cli/json.h"
#include "client/cli/profiles.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/file_io.h"
#include "codec/bytes.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice encode cache.safetensors cache.sluice
  sluice encode --lossless --model my-model cache.safetensors cache.sluice
  sluice encode --profile my-model.profile cache.safetensors cache.sluice
The input has tensors layers.{i}.k and layers.{i}.v, [num_kv_heads, num_tokens, head_dim].)";

struct Options {
  std::string in, out, profile;
  bool lossless = false, json = false, verbose = false;
  IdentityOptions identity;
};

void PrintLevels(const Options& options, const EncodedContext& context, uint64_t file_bytes) {
  Json levels = Json::array();
  for (const codec::LevelReport& level : Summarise(context)) {
    levels.push_back({{"level", codec::LevelName(level.level)},
                      {"bytes", level.bytes},
                      {"bits_per_element", level.bits_per_element},
                      {"max_error", level.max_error},
                      {"mean_error", level.mean_error},
                      {"error_bound", level.error_bound}});
  }
  const Json report = {{"out", options.out},
                       {"file_bytes", file_bytes},
                       {"chunks", context.file.containers.size()},
                       {"rate", context.rates.ToJson()},
                       {"levels", levels}};
  PrintJson(report);
}

void PrintTable(const EncodedContext& context) {
  Table table({{"level", Align::kLeft},
               {"bytes"},
               {"bits/element"},
               {"mean error"},
               {"max error"},
               {"bound"}});
  for (const codec::LevelReport& level : Summarise(context)) {
    table.Add({codec::LevelName(level.level), FormatBytes(level.bytes),
               FormatNumber(level.bits_per_element), FormatNumber(level.mean_error),
               FormatNumber(level.max_error), FormatNumber(level.error_bound)});
  }
  table.Print();
}

absl::StatusOr<ExitCode> Encode(const Options& options) {
  RETURN_IF_ERROR(CheckOutput(options.out, {options.in, options.profile}));
  ASSIGN_OR_RETURN(const client::ContextInput input, client::ReadContext(options.in));
  ASSIGN_OR_RETURN(const ProfilePtr profile, LoadProfile(options.profile, input.geometry, nullptr));
  ASSIGN_OR_RETURN(auto descriptor, MakeDescriptor(options.identity, input, *profile));
  ASSIGN_OR_RETURN(const EncodedContext context, EncodeContext({.input = input,
                                                                .profile = *profile,
                                                                .descriptor = descriptor,
                                                                .lossless = options.lossless}));
  RETURN_IF_ERROR(context.file.Validate());
  const std::string bytes = codec::SerializeContextFile(context.file);
  const std::span<const std::byte> parts[] = {codec::AsBytes(bytes)};
  RETURN_IF_ERROR(client::WriteFile(options.out, parts));
  if (context.file.profile_bytes.empty()) {
    KeepProfile(profile);
  }
  for (const std::string& note : context.notes) Note(note);
  if (options.verbose) {
    for (const std::string& note : input.notes) Note(note);
  }
  if (options.json) {
    PrintLevels(options, context, bytes.size());
    return kOk;
  }
  PrintTable(context);
  std::printf("%s: %s, %u tokens, %s\n", options.out.c_str(),
              FormatCount(context.file.containers.size(), "chunk").c_str(), input.num_tokens,
              FormatBytes(bytes.size()).c_str());
  return kOk;
}

}  // namespace

void AddEncode(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = AddCommand(app, run, "encode", "Encode a cache file at all levels", kExamples,
                             options, Encode);
  sub->add_option("IN", options->in, "Cache, safetensors")->required();
  sub->add_option("OUT", options->out, "Encoded context, .sluice")->required();
  AddProfile(*sub, options->profile);
  sub->add_flag("--lossless", options->lossless, "Add a bit-exact level");
  AddIdentity(*sub, options->identity);
  AddJson(*sub, options->json);
  AddVerbose(*sub, options->verbose);
}

}  // namespace sluice::cli
