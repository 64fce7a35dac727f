// Compares loaded chunks with the original: is every value within the error that its level admits,
// and about as near as encoding the original comes?
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/context_input.h"
#include "client/context_planes.h"
#include "client/loader.h"
#include "codec/profile.h"

namespace sluice::cli {

struct CheckedChunk {
  uint32_t chunk_index = 0;
  codec::Level level = 0;
  double max_error = 0;      // in the unit of the planes
  double encoded_error = 0;  // the same when the original is encoded here
  double bound = 0;          // 0: bit-exact
  std::string fault;         // what is wrong, with the plane's name; empty if nothing is
  std::string doubt;         // why it may not be the original's, though within the bound; or empty
};

// InvalidArgument unless the original has the profile's geometry and so many tokens.
absl::Status CheckShapes(const client::ContextInput& original, const codec::Profile& profile,
                         uint32_t num_tokens);

// Of the error of encoding here: a chunk that is further off is hardly of the original. Bounds hold
// for whatever is encoded, and can be so wide that another context's values are within them.
inline constexpr double kDoubtfulError = 2;

// Checks the loaded chunks among `outcomes`. The bound of a level is the encoder's: the original is
// encoded here once more. Lossless levels, first tokens of a context that are kept exact, and
// planes that are not quantised or hold NaN or Inf must be bit-exact.
absl::StatusOr<std::vector<CheckedChunk>> CheckChunks(
    const client::ContextInput& original, const codec::Profile& profile, uint32_t chunk_tokens,
    std::span<const client::ChunkOutcome> outcomes, const client::ContextPlanes& loaded);

}  // namespace sluice::cli
