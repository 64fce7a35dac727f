#include "client/store_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "client/remote_store.h"

namespace sluice::client {
namespace {

constexpr int kFirstReconnectMs = 100;
constexpr int kLastReconnectMs = 2000;
constexpr int kConnectMs = 1000;  // patience with one attempt to connect
// A host that vanished without a word is noticed after these two together.
constexpr int kKeepaliveMs = 10'000;
// gRPC also closes a connection whose data are not acknowledged for so long: on a slow link with a
// long queue that can be seconds.
constexpr int kKeepaliveTimeoutMs = 20'000;
// Bytes of a stream that may be on their way or unread. Fixed, and wider than any frame: a window
// that follows the measured bandwidth grows without a limit of ours, and with one narrower than a
// message, one call in sixty took 10 s longer to end (gRPC 1.51, large frames, a busy machine).
constexpr int kStreamWindowBytes = 8 << 20;
static_assert(kStreamWindowBytes >= 2 * static_cast<int>(kMaxFrameBytes));

}  // namespace

std::shared_ptr<grpc::Channel> MakeStoreChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLastReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void SetDeadline(grpc::ClientContext& context, absl::Time deadline) {
  context.set_deadline(absl::ToChronoTime(std::min(deadline, absl::Now() + kMaxCallTime)));
  context.set_wait_for_ready(false);
}

}  // namespace sluice::client
