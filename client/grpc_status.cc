#include "client/grpc_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::client {

absl::Status FromGrpc(const grpc::Status& status, const std::string& what) {
  if (status.ok()) return absl::OkStatus();
  int code = status.error_code();
  if (code < 0 || code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    code = static_cast<int>(absl::StatusCode::kUnknown);
  }
  return absl::Status(
      static_cast<absl::StatusCode>(code),
      absl::StrCat(what, ": ", status.error_message().substr(0, kMaxPeerMessageBytes)));
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace sluice::client
