// What became of a chunk of a load, as a value and on the wire.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "codec/profile.h"

namespace sluice::v1 {
class ChunkOutcome;
}

namespace sluice::client {

enum class RecomputeReason {
  kNone = 0,  // loaded
  kNotStored,
  kLate,
  kServerUnavailable,
  kDamaged,
  kBreakerOpen,
  kAfterCut,
  kComputed,
  kCancelled,
  kUnsupported,
  kNodeBusy,
  kComputeFaster,
};
std::string_view RecomputeReasonName(RecomputeReason reason);  // "not_stored", "late", ...

struct ChunkOutcome {
  uint32_t chunk_index = 0;
  RecomputeReason reason = RecomputeReason::kNone;
  codec::Level level = 0;
  uint64_t bytes = 0;      // payload received for the chunk
  double ms = 0;           // from the start of the load to the last write
  double bytes_per_s = 0;  // measured while the chunk was on its way
  double expected_ms = 0;  // time of its bytes on the link, as forecast when they were asked for
  double transfer_ms = 0;  // and as it was
  std::string message;

  bool operator==(const ChunkOutcome&) const = default;
};

// Told of outcomes that are final at the same time.
using OnOutcomes = std::function<void(std::span<const ChunkOutcome>)>;

v1::ChunkOutcome ToMessage(const ChunkOutcome& outcome);
// A reason that this program does not know stays as it is; its name is "unknown".
ChunkOutcome FromMessage(const v1::ChunkOutcome& message);

}  // namespace sluice::client
