// The edge of the Node protocol: every field of a request is checked here, and nowhere else.
//
// Pure functions from the wire's messages to plain structs. Engines are trusted with their own
// pools but not with the daemon: a request that is out of range gets InvalidArgument, which names
// the field and its limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "adapt/load_types.h"
#include "client/block_layout.h"
#include "client/prefill_costs.h"
#include "codec/chunk_key.h"
#include "codec/profile.h"
#include "sluice/v1/node.pb.h"

namespace sluice::client {

inline constexpr uint32_t kMaxSloMs = 600'000;
inline constexpr uint32_t kMaxQueryMs = 60'000;
inline constexpr size_t kMaxRequestIdBytes = 64;
inline constexpr double kMinWeight = 0.01;
inline constexpr double kMaxWeight = 100;
inline constexpr int kMaxTimings = 1024;
inline constexpr double kMaxPrefillMs = 3'600'000;

// Limits that a request is held against, from the daemon's configuration.
struct RequestLimits {
  uint32_t default_chunk_tokens = 256;
  uint32_t max_tokens = 4 << 20;                   // of one request
  uint64_t max_chunk_bytes = uint64_t{256} << 20;  // planes of one chunk, in a save
};

// Everything but the mapping itself.
absl::StatusOr<BlockLayout> CheckedLayout(const v1::RegisterPoolRequest& request);

// The profile that a request names; none means the built-in one.
absl::StatusOr<std::optional<codec::Digest>> CheckedProfileId(const std::string& profile_id);

// The planes of a query without a pool. Geometry::Validate has passed.
absl::StatusOr<codec::Geometry> CheckedGeometry(const v1::QueryRequest& request);

// A context: whose it is and how it is cut into chunks.
struct ContextKeys {
  codec::NamespaceDescriptor descriptor;
  codec::Digest namespace_digest = {};
  std::vector<codec::Digest> chunk_keys;  // of the full chunks
};

struct LoadArguments {
  ContextKeys context;
  std::vector<uint32_t> block_ids;  // of the full chunks
  absl::Duration slo;
  adapt::RecomputeCapability capability = adapt::RecomputeCapability::kNone;
  absl::Duration limit;  // at least the SLO
  double weight = 1;
  uint32_t num_tokens = 0;                // of the whole context, with the tail
  uint32_t skip_chunks = 0;               // wholly had by the engine; at most all full ones
  uint32_t skip_blocks = 0;               // had by the engine; their ids are not checked
  std::optional<codec::Level> max_level;  // at most one of the two is set
  std::optional<codec::Level> exact_level;
  std::string request_id;
};

struct SaveArguments {
  ContextKeys context;
  std::vector<uint32_t> block_ids;  // of the full chunks
  bool lossless = false;
  std::string request_id;
};

struct QueryArguments {
  ContextKeys context;
  absl::Duration timeout;
  absl::Duration slo;       // the longest there is if the request has none
  uint32_t num_tokens = 0;  // of the whole context
};

// `layout` and `profile_id` are those of the request's pool.
absl::StatusOr<LoadArguments> CheckedLoad(const v1::LoadRequest& request, const BlockLayout& layout,
                                          const codec::Digest& profile_id,
                                          const RequestLimits& limits);
// The model's name in PrefillCosts, and the timings.
struct PrefillArguments {
  std::string model;
  std::vector<PrefillCosts::Timing> timings;
};

absl::StatusOr<PrefillArguments> CheckedPrefill(const v1::ReportPrefillRequest& request);
// Contexts of the same model and revision cost the same to compute.
std::string PrefillModel(const codec::NamespaceDescriptor& descriptor);
absl::StatusOr<SaveArguments> CheckedSave(const v1::SaveRequest& request, const BlockLayout& layout,
                                          const codec::Digest& profile_id,
                                          const RequestLimits& limits);
absl::StatusOr<QueryArguments> CheckedQuery(const v1::QueryRequest& request,
                                            const codec::Digest& profile_id,
                                            const RequestLimits& limits);

}  // namespace sluice::client
