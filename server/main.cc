// sluiced: the storage server of Sluice.
//
// Exit codes: 0 stopped as asked; 1 a failure while running; 2 bad usage or configuration.
#include <grpc/support/log.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "codec/status_macros.h"
#include "server/chunk_cache.h"
#include "server/config.h"
#include "server/file_store.h"
#include "server/files.h"
#include "server/service.h"
#include "server/service_server.h"

namespace sluice::server {
namespace {

constexpr int kExitOk = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr size_t kMaxConfigFileBytes = 1 << 20;
constexpr absl::Duration kTick = absl::Seconds(1);  // of the watchdog and of expired uploads
constexpr char kExamples[] =
    "Examples:\n"
    "  sluiced --data-dir /var/lib/sluice --listen 0.0.0.0:7420 --quota '500 GiB'\n"
    "  sluiced --config /etc/sluice/sluiced.toml\n"
    "  sluiced --config /etc/sluice/sluiced.toml --check-config\n"
    "Exit codes: 0 stopped as asked, 1 failure while running, 2 bad usage or configuration.";

struct Flags {
  std::string config_path;
  std::string data_dir;
  std::vector<std::string> listen;
  std::string port_file;
  std::string quota;
  bool check_config = false;
};

// Reads the file, applies the flags, prints every fault. Empty: there were some.
std::optional<Config> LoadConfig(const Flags& flags) {
  ConfigFile file;
  if (!flags.config_path.empty()) {
    const auto text = ReadWhole(flags.config_path, kMaxConfigFileBytes);
    if (!text.ok()) {
      std::fprintf(stderr, "%s\n", std::string(text.status().message()).c_str());
      return std::nullopt;
    }
    file = ParseConfig(*text, flags.config_path);
  }
  // The file is not to blame for a flag's value.
  if (!flags.data_dir.empty()) {
    file.config.data_dir = flags.data_dir;
    file.lines.erase("store.data_dir");
  }
  if (!flags.listen.empty()) {
    file.config.listen = flags.listen;
    file.lines.erase("server.listen");
  }
  if (!flags.quota.empty()) {
    const auto bytes = ParseBytes(flags.quota);
    file.lines.erase("store.quota");
    if (bytes.ok()) {
      file.config.quota_bytes = *bytes;
    } else {
      file.faults.emplace(0, absl::StrCat("--quota: ", bytes.status().message()));
      file.unread.insert("store.quota");
    }
  }
  const std::vector<std::string> faults = AllFaults(file);
  for (const std::string& fault : faults) std::fprintf(stderr, "%s\n", fault.c_str());
  if (!faults.empty()) return std::nullopt;
  return file.config;
}

// Never destroyed: gRPC's threads may log until the process ends.
spdlog::logger& LoggerOfGrpc() {
  static auto* const logger = new std::shared_ptr<spdlog::logger>(spdlog::default_logger());
  return **logger;
}

// What gRPC says of its own accord (files and lines of its source) is for who looks for it.
void LogGrpc(gpr_log_func_args* args) {
  LoggerOfGrpc().debug("event=grpc message=\"{}\"", absl::CHexEscape(args->message));
}

// The signals that stop the server; blocked in every thread and waited for in Run.
sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// True if a signal came within `timeout`.
bool WaitForStop(absl::Duration timeout) {
  const sigset_t set = StopSignals();
  const timespec limit = absl::ToTimespec(timeout);
  return sigtimedwait(&set, nullptr, &limit) > 0;
}

absl::Status Announce(const RpcServer& server, const Flags& flags) {
  const std::string& first = server.addresses().front();
  if (!flags.port_file.empty()) {
    const std::string temporary = flags.port_file + ".tmp";
    std::string folder = flags.port_file.substr(0, flags.port_file.rfind('/') + 1);
    if (folder.empty()) folder = ".";
    Files& files = Files::System();
    RETURN_IF_ERROR(files.Remove(temporary));
    RETURN_IF_ERROR(files.WriteWhole(temporary, folder, flags.port_file,
                                     first.substr(first.rfind(':') + 1) + "\n"));
  }
  for (const std::string& address : server.addresses()) {
    std::printf("sluiced listening on %s\n", address.c_str());
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

void Stop(const Config& config, RpcServer& server) {
  spdlog::info("event=draining drain_ms={}", config.drain_ms);
  sd_notify(0, "STOPPING=1");
  server.Drain(absl::Now() + absl::Milliseconds(config.drain_ms), [](absl::Duration step) {
    sd_notify(0, "WATCHDOG=1");
    if (!WaitForStop(step)) return true;
    // Asked twice: what is on disk is consistent at any moment, so nothing is lost by leaving now.
    spdlog::warn("event=stopped_at_once");
    spdlog::shutdown();
    _exit(kExitFailure);
  });
  spdlog::info("event=stopped");
}

absl::Status Run(const Config& config, const Flags& flags) {
  FileStoreOptions options;
  options.data_dir = config.data_dir;
  options.quota_bytes = config.quota_bytes;
  options.max_namespaces = config.limits.max_namespaces;
  options.profile_quota_bytes = config.profile_quota_bytes;
  options.warn = [](absl::string_view line) { spdlog::warn("{}", std::string(line)); };
  ASSIGN_OR_RETURN(const std::unique_ptr<FileStore> store, FileStore::Open(std::move(options)));
  ChunkCache cache(store.get(), config.cache_bytes, config.cache_max_chunk_bytes());
  StoreService service(store.get(), &cache, config.limits);
  ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, RpcServer::Start(config, &service));
  RETURN_IF_ERROR(Announce(*server, flags));
  const StoreUsage usage = store->Usage();
  spdlog::info(
      "event=started version=\"{}\" data_dir=\"{}\" namespaces={} chunks={} bytes={} quota={}",
      ServerVersion(), config.data_dir, usage.namespaces, usage.chunks, usage.bytes,
      usage.quota_bytes);
  sd_notify(0, "READY=1");
  while (!WaitForStop(kTick)) {
    service.Tick();
    sd_notify(0, "WATCHDOG=1");
  }
  Stop(config, *server);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Sluice storage server: keeps encoded KV caches on local disk and streams them.",
               "sluiced");
  app.footer(kExamples);
  app.set_version_flag("--version", ServerVersion());
  app.add_option("--config", flags.config_path, "configuration file (TOML)");
  app.add_option("--data-dir", flags.data_dir, "folder of the chunks; overrides store.data_dir");
  app.add_option("--listen", flags.listen,
                 "host:port or unix:/path, may be repeated; overrides server.listen");
  app.add_option("--port-file", flags.port_file,
                 "write the port of the first address to this file once it is bound");
  app.add_option("--quota", flags.quota, "bytes on disk, such as '500 GiB'; overrides store.quota");
  app.add_flag("--check-config", flags.check_config, "check the configuration and exit");
  // The library reports by exceptions; --help and --version are among them.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const std::optional<Config> config = LoadConfig(flags);
  if (!config) return kExitUsage;
  if (flags.check_config) {
    std::printf("OK\n");
    return kExitOk;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("sluiced"));
  spdlog::set_pattern("time=%Y-%m-%dT%H:%M:%S.%eZ level=%l %v", spdlog::pattern_time_type::utc);
  spdlog::set_level(spdlog::level::from_str(config->log_level));
  LoggerOfGrpc();  // before the first message
  gpr_set_log_function(LogGrpc);
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const absl::Status status = Run(*config, flags);
  if (status.ok()) return kExitOk;
  spdlog::error("event=failed error=\"{}\"", std::string(status.message()));
  return kExitFailure;
}

}  // namespace
}  // namespace sluice::server

int main(int argc, char** argv) { return sluice::server::Main(argc, argv); }
