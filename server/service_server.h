// The gRPC server around StoreService: listening, health, reflection, limits, drain.
//
// Start and Drain from one thread; the rest is thread-safe.
#pragma once

#include <grpcpp/server.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/config.h"
#include "server/service.h"

namespace sluice::server {

class RpcServer {
 public:
  // Listens on every address or fails naming the one that it cannot use. `service` must live
  // longer.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Config& config,
                                                          StoreService* service);
  // Cancels what is still running.
  ~RpcServer();

  // As in the configuration, with the ports that were bound in place of 0.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // Reports NOT_SERVING and refuses new work, lets what is running end until `deadline`, cancels
  // the rest. `wait(d)` waits for d; it returns false to stop waiting.
  void Drain(absl::Time deadline, const std::function<bool(absl::Duration)>& wait);

 private:
  RpcServer(StoreService* service, std::vector<std::string> addresses,
            std::unique_ptr<grpc::Server> server);

  StoreService* const service_;
  const std::vector<std::string> addresses_;
  const std::unique_ptr<grpc::Server> server_;
};

}  // namespace sluice::server
