#include "server/service_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice::server {

namespace {

constexpr int kUnaryThreads = 64;  // besides those of streams
// Calls of one connection at a time: one client that reads no answers cannot take all threads.
constexpr int kCallsPerConnection = 100;
constexpr int kKeepaliveMs = 10000;  // a peer that has vanished is noticed after about 30 s
constexpr int kKeepaliveTimeoutMs = 20000;  // more than the queue of a slow link holds
constexpr int kMinPingIntervalMs = 1000;  // clients that ping more often are disconnected
// Bytes of a stream that may be on their way or unread. Fixed, and wider than any frame: a window
// that follows the measured bandwidth grows without a limit of ours, and with one narrower than a
// message, one call in sixty took 10 s longer to end (gRPC 1.51, large frames, a busy machine).
constexpr int kStreamWindowBytes = 4 << 20;
constexpr absl::Duration kDrainStep = absl::Milliseconds(20);
constexpr std::chrono::milliseconds kShutdownGrace(500);  // for answers on their way

void SetLimits(const Config& config, grpc::ServerBuilder& builder) {
  const int max_message = static_cast<int>(MaxMessageBytes(config.limits));
  builder.SetMaxReceiveMessageSize(max_message);
  builder.SetMaxSendMessageSize(max_message);
  grpc::ResourceQuota quota("sluiced");
  quota.SetMaxThreads(static_cast<int>(config.limits.max_streams) + kUnaryThreads);
  builder.SetResourceQuota(quota);
  // Two servers on one port would share its connections silently.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
}

}  // namespace

RpcServer::RpcServer(StoreService* service, std::vector<std::string> addresses,
                     std::unique_ptr<grpc::Server> server)
    : service_(service), addresses_(std::move(addresses)), server_(std::move(server)) {}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const Config& config,
                                                            StoreService* service) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetLimits(config, builder);
  std::vector<int> ports(config.listen.size(), 0);
  for (size_t i = 0; i < config.listen.size(); ++i) {
    builder.AddListeningPort(config.listen[i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::vector<std::string> addresses;
  for (size_t i = 0; i < config.listen.size(); ++i) {
    const std::string& address = config.listen[i];
    if (ports[i] == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, ": in use, not allowed or not an address"));
    }
    addresses.push_back(absl::StartsWith(address, "unix:")
                            ? address
                            : absl::StrCat(address.substr(0, address.rfind(':') + 1), ports[i]));
  }
  if (server == nullptr) return absl::UnavailableError("the gRPC server did not start");
  server->GetHealthCheckService()->SetServingStatus(true);
  server->GetHealthCheckService()->SetServingStatus(v1::Store::service_full_name(), true);
  return std::unique_ptr<RpcServer>(
      new RpcServer(service, std::move(addresses), std::move(server)));
}

RpcServer::~RpcServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

void RpcServer::Drain(absl::Time deadline, const std::function<bool(absl::Duration)>& wait) {
  server_->GetHealthCheckService()->SetServingStatus(false);
  server_->GetHealthCheckService()->SetServingStatus(v1::Store::service_full_name(), false);
  service_->StartDrain();
  while (service_->EndIdleStreams() > 0 && absl::Now() < deadline) {
    if (!wait(kDrainStep)) break;
  }
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
}

}  // namespace sluice::server
