#include "client/cli/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/parallel.h"
#include "client/cli/progress.h"
#include "client/cli/units.h"
#include "codec/elements.h"
#include "codec/encoder.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

using client::ContextInput;

// How well a level does, from encoding the original.
absl::StatusOr<codec::LevelReport> Encode(const codec::Profile& profile,
                                          const client::ChunkPlanes& planes, uint32_t start_token,
                                          uint32_t num_tokens, codec::Level level) {
  if (level == codec::kLossless) return codec::LevelReport{.level = level};
  ASSIGN_OR_RETURN(const auto encoded,
                   codec::EncodeChunk(profile, {.start_token = start_token}, planes.planes(),
                                      num_tokens, {.lossy = true, .lossless = false}));
  for (const codec::LevelReport& report : encoded.levels) {
    if (report.level == level) return report;
  }
  return absl::NotFoundError(absl::StrCat("level ", codec::LevelName(level), " cannot be made"));
}

double LargestError(codec::ElementType type, std::span<const std::byte> a,
                    std::span<const std::byte> b) {
  const size_t count = a.size() / codec::ElementBytes(type);
  std::vector<float> x(count), y(count);
  codec::ElementsToFloat(type, a, x);
  codec::ElementsToFloat(type, b, y);
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const double error = std::abs(double{x[i]} - double{y[i]});
    if (!(error <= largest)) largest = std::isnan(error) ? INFINITY : error;
  }
  return largest;
}

// Compares one plane of a chunk, row by row: a row is one head's tokens.
void CheckPlane(const codec::PlaneSpec& spec, std::span<const std::byte> original,
                std::span<const std::byte> context, uint32_t context_tokens, uint32_t start_token,
                uint32_t num_tokens, uint32_t sink_tokens, CheckedChunk& result) {
  const size_t token_bytes = spec.head_dim * codec::ElementBytes(spec.element_type);
  const bool exact = result.level == codec::kLossless || !codec::IsQuantisable(spec.element_type) ||
                     client::HasNonFinite(spec.element_type, original);
  const size_t exact_tokens =
      exact ? num_tokens : std::min(num_tokens, start_token == 0 ? sink_tokens : 0);
  const auto fail = [&](const char* what) {
    if (result.fault.empty()) {
      result.fault = absl::StrCat(client::PlaneTensorName(spec), ": ", what);
    }
  };
  for (size_t head = 0; head < spec.num_heads; ++head) {
    const auto want = original.subspan(head * num_tokens * token_bytes, num_tokens * token_bytes);
    const auto got = context.subspan((head * context_tokens + start_token) * token_bytes,
                                     num_tokens * token_bytes);
    const size_t exact_bytes = exact_tokens * token_bytes;
    if (std::memcmp(want.data(), got.data(), exact_bytes) != 0) fail("not bit-exact");
    if (exact) continue;
    const double error =
        LargestError(spec.element_type, want.subspan(exact_bytes), got.subspan(exact_bytes));
    result.max_error = std::max(result.max_error, error);
    if (error > result.bound) fail("error over the bound");
  }
}

}  // namespace

absl::Status CheckShapes(const ContextInput& original, const codec::Profile& profile,
                         uint32_t num_tokens) {
  if (original.geometry == profile.geometry() && original.num_tokens >= num_tokens) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("the original has other shapes than what is loaded");
}

absl::StatusOr<std::vector<CheckedChunk>> CheckChunks(
    const ContextInput& original, const codec::Profile& profile, uint32_t chunk_tokens,
    std::span<const client::ChunkOutcome> outcomes, const client::ContextPlanes& loaded) {
  RETURN_IF_ERROR(CheckShapes(original, profile, loaded.num_tokens()));
  std::vector<CheckedChunk> checked;
  for (const client::ChunkOutcome& outcome : outcomes) {
    if (outcome.reason != client::RecomputeReason::kNone) continue;
    CheckedChunk& chunk = checked.emplace_back();
    chunk.chunk_index = outcome.chunk_index;
    chunk.level = outcome.level;
  }
  Progress progress("checking chunks", checked.size());
  RETURN_IF_ERROR(ParallelFor(
      checked.size(),
      [&](size_t i) -> absl::Status {
        CheckedChunk& chunk = checked[i];
        const uint32_t start = chunk.chunk_index * chunk_tokens;
        const client::ChunkPlanes planes(original, start, chunk_tokens);
        ASSIGN_OR_RETURN(const codec::LevelReport encoded,
                         Encode(profile, planes, start, chunk_tokens, chunk.level));
        chunk.encoded_error = encoded.max_error;
        chunk.bound = encoded.error_bound;
        for (size_t plane = 0; plane < planes.planes().size(); ++plane) {
          CheckPlane(profile.geometry().planes[plane], planes.planes()[plane], loaded.plane(plane),
                     loaded.num_tokens(), start, chunk_tokens, profile.sink_tokens(), chunk);
        }
        if (chunk.max_error > kDoubtfulError * chunk.encoded_error) {
          chunk.doubt = absl::StrCat("is off by ", FormatNumber(chunk.max_error),
                                     ", where encoding the original here gives ",
                                     FormatNumber(chunk.encoded_error),
                                     ": it may be another context's, or stored by another version");
        }
        return absl::OkStatus();
      },
      [&](size_t done) { progress.Update(done); }));
  return checked;
}

}  // namespace sluice::cli
