#include "client/chunk_outcome.h"

#include "sluice/v1/node.pb.h"

namespace sluice::client {

std::string_view RecomputeReasonName(RecomputeReason reason) {
  switch (reason) {
    case RecomputeReason::kNone:
      return "none";
    case RecomputeReason::kNotStored:
      return "not_stored";
    case RecomputeReason::kLate:
      return "late";
    case RecomputeReason::kServerUnavailable:
      return "server_unavailable";
    case RecomputeReason::kDamaged:
      return "damaged";
    case RecomputeReason::kBreakerOpen:
      return "breaker_open";
    case RecomputeReason::kAfterCut:
      return "after_cut";
    case RecomputeReason::kComputed:
      return "computed";
    case RecomputeReason::kCancelled:
      return "cancelled";
    case RecomputeReason::kUnsupported:
      return "unsupported";
    case RecomputeReason::kNodeBusy:
      return "node_busy";
    case RecomputeReason::kComputeFaster:
      return "compute_faster";
  }
  return "unknown";
}

// The wire's enumerators have the same values.
static_assert(static_cast<int>(RecomputeReason::kNone) == v1::RECOMPUTE_REASON_NONE);
static_assert(static_cast<int>(RecomputeReason::kComputeFaster) ==
              v1::RECOMPUTE_REASON_COMPUTE_FASTER);

v1::ChunkOutcome ToMessage(const ChunkOutcome& outcome) {
  v1::ChunkOutcome message;
  message.set_chunk_index(outcome.chunk_index);
  message.set_reason(static_cast<v1::RecomputeReason>(outcome.reason));
  message.set_level(outcome.level);
  message.set_bytes(outcome.bytes);
  message.set_ms(outcome.ms);
  message.set_bytes_per_s(outcome.bytes_per_s);
  message.set_expected_ms(outcome.expected_ms);
  message.set_transfer_ms(outcome.transfer_ms);
  message.set_message(outcome.message);
  return message;
}

ChunkOutcome FromMessage(const v1::ChunkOutcome& message) {
  ChunkOutcome outcome;
  outcome.chunk_index = message.chunk_index();
  outcome.reason = static_cast<RecomputeReason>(message.reason());
  outcome.level = static_cast<codec::Level>(message.level());
  outcome.bytes = message.bytes();
  outcome.ms = message.ms();
  outcome.bytes_per_s = message.bytes_per_s();
  outcome.expected_ms = message.expected_ms();
  outcome.transfer_ms = message.transfer_ms();
  outcome.message = message.message();
  return outcome;
}

}  // namespace sluice::client
