// How many first tokens of a context are unlike all others.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "codec/calibrate/contexts.h"

namespace sluice::codec {

// Models park attention on their first tokens, whose keys and values then differ from those of all
// other tokens: the transform would have to serve both, and an error in them meets every later
// token. This counts the tokens up to the last one of the first sixteen whose distance from the
// mean, over contexts and all keys or all values, is far from usual; one is always kept, since the
// first is always attended to. Contexts too short to say give Profile::kSinkTokens.
// Errors are those of ChannelReader::ReadPlane.
absl::StatusOr<uint32_t> ChooseSinkTokens(const Contexts& contexts);

}  // namespace sluice::codec
