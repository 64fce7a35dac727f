// The node daemon: flags and configuration, the service on a unix socket, signals.
#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/file_io.h"
#include "client/log_text.h"
#include "client/node_config.h"
#include "client/node_service.h"
#include "client/unix_listener.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace sluice::client {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
// Largest request, bytes: a context of the most tokens with its blocks, five bytes each at most.
constexpr int kMaxRequestBytes = 64 << 20;
// Threads for short calls, beside one for each load and each save.
constexpr int kSpareThreads = 32;
constexpr int kIdleTickMs = 1000;
constexpr uint64_t kMaxConfigFileBytes = 1 << 20;

struct Flags {
  std::string config_file;
  std::string server;
  std::string socket;
  bool check_config = false;
};

const char kExamples[] =
    "Examples:\n"
    "  sluice-node --config /etc/sluice/sluice-node.toml\n"
    "  sluice-node --server 10.0.0.5:7420 --socket /tmp/node.sock\n"
    "  sluice-node --config sluice-node.toml --check-config\n"
    "Exit status: 0 after SIGTERM or SIGINT, 1 cannot start, 2 wrong flags or configuration.";

// Applies the flags, prints every fault. Empty: there were some.
std::optional<NodeConfig> ReadConfig(const Flags& flags) {
  NodeConfigFile file;
  if (!flags.config_file.empty()) {
    const absl::StatusOr<std::string> text = ReadFile(flags.config_file, kMaxConfigFileBytes);
    if (!text.ok()) {
      std::fprintf(stderr, "%s\n", std::string(text.status().message()).c_str());
      return std::nullopt;
    }
    file = ParseNodeConfig(*text, flags.config_file);
  }
  // The file is not to blame for a flag's value.
  const auto apply = [&file](const std::string& flag, const char* key, std::string& target) {
    if (flag.empty()) return;
    target = flag;
    file.lines.erase(key);
  };
  apply(flags.server, "node.server", file.config.server);
  apply(flags.socket, "node.socket", file.config.socket);
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
  LoggerOfGrpc().debug("event=grpc message={}", Quoted(args->message));
}

void StartLogging(const NodeConfig& config) {
  auto logger = spdlog::stderr_logger_mt("sluice-node");
  logger->set_pattern("time=%Y-%m-%dT%H:%M:%S.%eZ level=%l %v", spdlog::pattern_time_type::utc);
  logger->set_level(spdlog::level::from_str(config.log_level));
  spdlog::set_default_logger(std::move(logger));
  LoggerOfGrpc();  // before the first message
  gpr_set_log_function(LogGrpc);
}

std::unique_ptr<NodeService> MakeService(const NodeConfig& config) {
  std::shared_ptr<RemoteStore> store = RemoteStore::Create(config.server);
  Loader::Config loader;
  loader.reserve = absl::Milliseconds(config.reserve_ms);
  loader.decode_threads = config.decode_threads;
  loader.memory_limit_bytes = config.limits.load_memory_bytes;
  NodeService::Config service;
  service.node = "sluice-node " SLUICE_VERSION;
  service.requests.default_chunk_tokens = config.chunk_tokens;
  service.requests.max_tokens = config.limits.tokens_per_request;
  service.requests.max_chunk_bytes = config.limits.chunk_bytes;
  service.max_pools = config.limits.pools;
  service.max_loads = config.limits.loads;
  service.prefill_file = config.prefill_file;
  service.records = {config.record_dir, config.max_records, service.node};
  service.saver.threads = config.save_threads;
  service.saver.max_saves = config.limits.saves;
  service.saver.put_timeout = absl::Milliseconds(config.put_timeout_ms);
  ProfileStore::Config profiles;
  profiles.folder = {
      .path = config.profile_cache_dir, .mode = 0755, .max_bytes = config.profile_cache_bytes};
  profiles.memory_bytes = config.limits.profile_memory_bytes;
  return std::make_unique<NodeService>(store, Loader::Create(store, loader),
                                       std::make_shared<ProfileStore>(store, std::move(profiles)),
                                       std::move(service));
}

std::unique_ptr<grpc::Server> StartServer(const NodeConfig& config, NodeService& service) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ResourceQuota quota("node");
  quota.SetMaxThreads(static_cast<int>(config.limits.loads + config.limits.saves) + kSpareThreads);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.AddListeningPort("unix:" + config.socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const mode_t old_mask = umask(0117);  // the socket is for the daemon's user and group
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  umask(old_mask);
  return server;
}

// Returns when a signal asks for the end; meanwhile tells systemd that the daemon is alive.
int WaitForSignal(const sigset_t& signals) {
  uint64_t watchdog_us = 0;
  const bool watched = sd_watchdog_enabled(/*unset_environment=*/0, &watchdog_us) > 0;
  const uint64_t tick_ms = watched ? std::max<uint64_t>(watchdog_us / 2000, 1) : kIdleTickMs;
  const timespec tick = {.tv_sec = static_cast<time_t>(tick_ms / 1000),
                         .tv_nsec = static_cast<long>(tick_ms % 1000) * 1'000'000};
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &tick);
    if (signal > 0) return signal;
    if (watched) sd_notify(0, "WATCHDOG=1");
  }
}

int Run(const NodeConfig& config) {
  // Blocked before any thread exists, so that only WaitForSignal sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  if (const absl::Status clear = ClearStaleSocket(config.socket); !clear.ok()) {
    spdlog::error("event=failed error={}", Quoted(std::string(clear.message())));
    return kExitFailure;
  }
  const std::unique_ptr<NodeService> service = MakeService(config);
  const std::unique_ptr<grpc::Server> server = StartServer(config, *service);
  if (server == nullptr) {
    spdlog::error("event=failed error={}", Quoted("cannot listen on unix:" + config.socket));
    return kExitFailure;
  }
  std::printf("sluice-node listening on unix:%s\n", config.socket.c_str());
  std::fflush(stdout);
  spdlog::info("event=started version={} socket={} server={}", SLUICE_VERSION,
               Quoted(config.socket), Quoted(config.server));
  sd_notify(0, "READY=1");

  const int signal = WaitForSignal(signals);
  sd_notify(0, "STOPPING=1");
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // a second signal ends the process at once
  const absl::Time deadline = absl::Now() + absl::Milliseconds(config.drain_ms);
  const bool drained = service->Stop(deadline);
  server->Shutdown(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
  spdlog::info("event=stopped signal={} saves_drained={}", signal, drained);
  if (!drained) {
    // A put that hangs would hold the exit up to its timeout; on the server it is not visible
    // anyway.
    spdlog::shutdown();
    unlink(config.socket.c_str());
    std::_Exit(EXIT_SUCCESS);
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace sluice::client

int main(int argc, char** argv) {
  using namespace sluice::client;
  CLI::App app("Loads and saves KV caches for the serving engines of this host.", "sluice-node");
  Flags flags;
  app.add_option("--config", flags.config_file, "TOML file; without it every default holds");
  app.add_option("--server", flags.server, "storage server, HOST:PORT; wins over the file");
  app.add_option("--socket", flags.socket, "unix socket for the engines; wins over the file");
  app.add_flag("--check-config", flags.check_config, "check the configuration and exit");
  app.set_version_flag("--version", "sluice-node " SLUICE_VERSION);
  app.footer(kExamples);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kExitUsage;
  }
  const std::optional<NodeConfig> config = ReadConfig(flags);
  if (!config) return kExitUsage;
  if (flags.check_config) {
    std::puts("OK");
    return EXIT_SUCCESS;
  }
  StartLogging(*config);
  return Run(*config);
}
