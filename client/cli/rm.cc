// sluice rm: removes chunks from a server.
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/options.h"
#include "client/cli/units.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice rm 3fa9
  sluice rm my-model --idle 86400
  sluice rm 3fa9 --chunk KEY --include-pinned
NAMESPACE is the start of a digest, or a model's name; without --chunk all chunks are removed.)";

struct Options {
  ServerOptions server;
  std::string name;
  std::vector<std::string> chunks;
  double idle_s = 0;
  bool include_pinned = false, json = false;
};

absl::StatusOr<ExitCode> Rm(const Options& options) {
  const auto admin = client::RemoteAdmin::Create(options.server.address);
  ASSIGN_OR_RETURN(auto selector,
                   MakeSelector(*admin, options.name, options.chunks, options.server.Deadline()));
  selector.idle_at_least_ms = static_cast<uint64_t>(options.idle_s * 1000);
  ASSIGN_OR_RETURN(const client::DeleteResult result,
                   admin->Delete(selector, options.include_pinned, options.server.Deadline()));
  if (options.json) {
    PrintJson({{"deleted_chunks", result.deleted_chunks},
               {"deleted_bytes", result.deleted_bytes},
               {"pinned_chunks", result.pinned_chunks}});
  } else {
    std::printf("%s removed, %s freed\n", FormatCount(result.deleted_chunks, "chunk").c_str(),
                FormatBytes(result.deleted_bytes).c_str());
  }
  if (result.deleted_chunks == 0 && result.pinned_chunks > 0) {
    return WithHint(absl::FailedPreconditionError(absl::StrCat(
                        "nothing was removed: ", FormatCount(result.pinned_chunks, "chunk"),
                        result.pinned_chunks == 1 ? " is" : " are", " pinned")),
                    "see: sluice pin --off, and --include-pinned");
  }
  if (options.idle_s == 0) {
    RETURN_IF_ERROR(CheckMatched(selector, result.deleted_chunks + result.pinned_chunks));
  }
  if (result.pinned_chunks > 0) {
    Note(absl::StrCat("kept ", FormatCount(result.pinned_chunks, "pinned chunk"),
                      "; see --include-pinned"));
  }
  return kOk;
}

}  // namespace

void AddRm(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = AddCommand(app, run, "rm", "Remove chunks", kExamples, options, Rm);
  sub->add_option("NAMESPACE", options->name, "Whose chunks")->required();
  sub->add_option("--chunk", options->chunks,
                  "Only this key, 64 hexadecimal digits; may be repeated")
      ->allow_extra_args(false);
  sub->add_option("--idle", options->idle_s, "Only chunks that were not used for this long, s")
      ->check(Within(0, 1e9));
  sub->add_flag("--include-pinned", options->include_pinned, "Remove pinned chunks too");
  AddServer(*sub, options->server);
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
