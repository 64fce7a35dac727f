// sluice pin: protects chunks of a server from eviction.
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/options.h"
#include "client/cli/units.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  sluice pin my-model
  sluice pin 3fa9 --chunk KEY
  sluice pin my-model --off
NAMESPACE is the start of a digest, or a model's name.)";

struct Options {
  ServerOptions server;
  std::string name;
  std::vector<std::string> chunks;
  bool off = false, json = false;
};

absl::StatusOr<ExitCode> Pin(const Options& options) {
  const auto admin = client::RemoteAdmin::Create(options.server.address);
  ASSIGN_OR_RETURN(const auto selector,
                   MakeSelector(*admin, options.name, options.chunks, options.server.Deadline()));
  ASSIGN_OR_RETURN(const uint64_t matched,
                   admin->Pin(selector, !options.off, options.server.Deadline()));
  if (options.json) {
    PrintJson({{"matched_chunks", matched}, {"pinned", !options.off}});
  } else {
    std::printf("%s %s\n", FormatCount(matched, "chunk").c_str(),
                options.off ? "unpinned" : "pinned");
  }
  RETURN_IF_ERROR(CheckMatched(selector, matched));
  return kOk;
}

}  // namespace

void AddPin(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      AddCommand(app, run, "pin", "Protect chunks from eviction", kExamples, options, Pin);
  sub->add_option("NAMESPACE", options->name, "Whose chunks")->required();
  sub->add_option("--chunk", options->chunks,
                  "Only this key, 64 hexadecimal digits; may be repeated")
      ->allow_extra_args(false);
  sub->add_flag("--off", options->off, "End the protection");
  AddServer(*sub, options->server);
  AddJson(*sub, options->json);
}

}  // namespace sluice::cli
