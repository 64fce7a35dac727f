#include "client/node_validate.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

using TokenIds = google::protobuf::RepeatedField<uint32_t>;

absl::Status OutOfRange(const std::string& field, uint64_t value, uint64_t low, uint64_t high) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, "; ", low, "..", high, " are allowed"));
}

absl::StatusOr<codec::PlaneSpec> ToPlane(const v1::PlaneSpec& message, int index) {
  const std::string field = absl::StrCat("geometry.planes[", index, "].");
  if (message.kind() < v1::PLANE_KIND_KEY || message.kind() > v1::PLANE_KIND_OPAQUE) {
    return OutOfRange(field + "kind", message.kind(), v1::PLANE_KIND_KEY, v1::PLANE_KIND_OPAQUE);
  }
  if (message.element_type() < v1::ELEMENT_TYPE_BF16 ||
      message.element_type() > v1::ELEMENT_TYPE_BYTES) {
    return OutOfRange(field + "element_type", message.element_type(), v1::ELEMENT_TYPE_BF16,
                      v1::ELEMENT_TYPE_BYTES);
  }
  if (message.rotary_table() > codec::Geometry::kMaxRotaryTables) {
    return OutOfRange(field + "rotary_table", message.rotary_table(), 0,
                      codec::Geometry::kMaxRotaryTables);
  }
  // The wire's enumerators have the codec's values.
  codec::PlaneSpec plane;
  plane.kind = static_cast<codec::PlaneKind>(message.kind());
  plane.element_type = static_cast<codec::ElementType>(message.element_type());
  plane.model_layer = message.model_layer();
  plane.num_heads = message.num_heads();
  plane.head_dim = message.head_dim();
  plane.rotary_table = static_cast<int32_t>(message.rotary_table()) - 1;  // kNotRotated is -1
  return plane;
}

absl::StatusOr<codec::RotaryTable> ToRotaryTable(const v1::RotaryTable& message, int index) {
  if (message.layout() < v1::ROTARY_LAYOUT_HALF ||
      message.layout() > v1::ROTARY_LAYOUT_INTERLEAVED) {
    return OutOfRange(absl::StrCat("geometry.rotary_tables[", index, "].layout"), message.layout(),
                      v1::ROTARY_LAYOUT_HALF, v1::ROTARY_LAYOUT_INTERLEAVED);
  }
  codec::RotaryTable table;
  table.layout = static_cast<codec::RotaryLayout>(message.layout());
  table.first_dim = message.first_dim();
  table.inverse_frequencies.assign(message.inverse_frequencies().begin(),
                                   message.inverse_frequencies().end());
  return table;
}

absl::StatusOr<codec::Geometry> ToGeometry(const v1::Geometry& message) {
  if (message.planes_size() > static_cast<int>(codec::Geometry::kMaxPlanes)) {
    return OutOfRange("number of geometry.planes", message.planes_size(), 1,
                      codec::Geometry::kMaxPlanes);
  }
  if (message.rotary_tables_size() > static_cast<int>(codec::Geometry::kMaxRotaryTables)) {
    return OutOfRange("number of geometry.rotary_tables", message.rotary_tables_size(), 0,
                      codec::Geometry::kMaxRotaryTables);
  }
  codec::Geometry geometry;
  for (int i = 0; i < message.planes_size(); ++i) {
    ASSIGN_OR_RETURN(codec::PlaneSpec plane, ToPlane(message.planes(i), i));
    geometry.planes.push_back(plane);
  }
  for (int i = 0; i < message.rotary_tables_size(); ++i) {
    ASSIGN_OR_RETURN(codec::RotaryTable table, ToRotaryTable(message.rotary_tables(i), i));
    geometry.rotary_tables.push_back(std::move(table));
  }
  return geometry;
}

absl::StatusOr<ContextKeys> ToContext(const v1::ModelIdentity& identity, const TokenIds& token_ids,
                                      const codec::Digest& profile_id,
                                      const RequestLimits& limits) {
  if (token_ids.size() > static_cast<int64_t>(limits.max_tokens)) {
    return OutOfRange("number of token_ids", token_ids.size(), 0, limits.max_tokens);
  }
  ContextKeys context;
  context.descriptor.model = identity.model();
  context.descriptor.revision = identity.revision();
  context.descriptor.adapter = identity.adapter();
  context.descriptor.tenant = identity.tenant();
  context.descriptor.salt = identity.salt();
  context.descriptor.chunk_tokens =
      identity.chunk_tokens() == 0 ? limits.default_chunk_tokens : identity.chunk_tokens();
  context.descriptor.profile_id = profile_id;
  RETURN_IF_ERROR(context.descriptor.Validate());
  context.namespace_digest = codec::NamespaceDigest(context.descriptor);
  context.chunk_keys = codec::ChunkKeys(
      context.namespace_digest, std::span(token_ids.data(), static_cast<size_t>(token_ids.size())),
      context.descriptor.chunk_tokens);
  return context;
}

// The block ids of the full chunks. Those from `first_block` on must be distinct and in the pool.
absl::StatusOr<std::vector<uint32_t>> ToBlocks(const TokenIds& block_ids, size_t num_tokens,
                                               const ContextKeys& context,
                                               const BlockLayout& layout, size_t first_block) {
  const uint32_t chunk_tokens = context.descriptor.chunk_tokens;
  if (chunk_tokens % layout.block_tokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat("identity.chunk_tokens is ", chunk_tokens,
                                                   ", not a multiple of the pool's block_tokens ",
                                                   layout.block_tokens));
  }
  const size_t per_chunk = chunk_tokens / layout.block_tokens;
  const size_t needed = context.chunk_keys.size() * per_chunk;
  const size_t most = (num_tokens + layout.block_tokens - 1) / layout.block_tokens;
  const auto count = static_cast<size_t>(block_ids.size());
  if (count < needed || count > most) return OutOfRange("number of block_ids", count, needed, most);
  absl::flat_hash_set<uint32_t> seen;
  for (size_t i = first_block; i < needed; ++i) {
    const uint32_t block = block_ids[static_cast<int>(i)];
    if (block >= layout.num_blocks) {
      return OutOfRange(absl::StrCat("block_ids[", i, "]"), block, 0, layout.num_blocks - 1);
    }
    if (!seen.insert(block).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("block_ids[", i, "] is ", block, ", which is listed before"));
    }
  }
  return std::vector<uint32_t>(block_ids.begin(), block_ids.begin() + static_cast<int>(needed));
}

absl::StatusOr<std::string> ToRequestId(const std::string& request_id) {
  if (request_id.size() > kMaxRequestIdBytes) {
    return OutOfRange("length of request_id", request_id.size(), 0, kMaxRequestIdBytes);
  }
  for (const char c : request_id) {
    if (c <= ' ' || c > '~') {
      return absl::InvalidArgumentError("request_id must be printable ASCII without spaces");
    }
  }
  return request_id;
}

absl::StatusOr<codec::Level> ToLevel(const char* field, uint32_t level) {
  if (level >= codec::kMaxLossyLevels && level != codec::kLossless) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is ", level, "; 0..",
                                                   codec::kMaxLossyLevels - 1, " and ",
                                                   uint32_t{codec::kLossless}, " are allowed"));
  }
  return static_cast<codec::Level>(level);
}

absl::Status ReadLevels(const v1::LoadRequest& request, LoadArguments& arguments) {
  if (request.has_max_level() && request.has_exact_level()) {
    return absl::InvalidArgumentError("max_level and exact_level are both set; one is allowed");
  }
  if (request.has_max_level()) {
    ASSIGN_OR_RETURN(arguments.max_level, ToLevel("max_level", request.max_level()));
  }
  if (request.has_exact_level()) {
    ASSIGN_OR_RETURN(arguments.exact_level, ToLevel("exact_level", request.exact_level()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BlockLayout> CheckedLayout(const v1::RegisterPoolRequest& request) {
  BlockLayout layout;
  ASSIGN_OR_RETURN(layout.geometry, ToGeometry(request.geometry()));
  layout.pool_bytes = request.pool_bytes();
  layout.num_blocks = request.num_blocks();
  layout.block_tokens = request.block_tokens();
  if (request.layouts_size() != request.geometry().planes_size()) {
    return absl::InvalidArgumentError(absl::StrCat("layouts has ", request.layouts_size(),
                                                   " entries for ",
                                                   request.geometry().planes_size(), " planes"));
  }
  for (const v1::PlaneLayout& plane : request.layouts()) {
    layout.planes.push_back({.offset_bytes = plane.offset_bytes(),
                             .block_stride_bytes = plane.block_stride_bytes(),
                             .token_stride_bytes = plane.token_stride_bytes(),
                             .head_stride_bytes = plane.head_stride_bytes(),
                             .token_tile = plane.token_tile(),
                             .token_tile_stride_bytes = plane.token_tile_stride_bytes(),
                             .dim_tile = plane.dim_tile(),
                             .dim_tile_stride_bytes = plane.dim_tile_stride_bytes(),
                             .dim_stride_bytes = plane.dim_stride_bytes()});
  }
  RETURN_IF_ERROR(layout.Validate());
  return layout;
}

absl::StatusOr<std::optional<codec::Digest>> CheckedProfileId(const std::string& profile_id) {
  if (profile_id.empty()) return std::nullopt;
  return codec::DigestFromBytes(profile_id, "profile_id");
}

absl::StatusOr<codec::Geometry> CheckedGeometry(const v1::QueryRequest& request) {
  if (request.pool_id() != 0) {
    return absl::InvalidArgumentError(
        "pool_id is set, and geometry or profile_id too; they are the pool's");
  }
  if (!request.has_geometry()) {
    return absl::InvalidArgumentError("geometry is not set, and pool_id is 0; set one of them");
  }
  ASSIGN_OR_RETURN(codec::Geometry geometry, ToGeometry(request.geometry()));
  RETURN_IF_ERROR(geometry.Validate());
  return geometry;
}

absl::StatusOr<LoadArguments> CheckedLoad(const v1::LoadRequest& request, const BlockLayout& layout,
                                          const codec::Digest& profile_id,
                                          const RequestLimits& limits) {
  LoadArguments spec;
  ASSIGN_OR_RETURN(spec.request_id, ToRequestId(request.request_id()));
  RETURN_IF_ERROR(ReadLevels(request, spec));
  if (request.slo_ms() > kMaxSloMs) return OutOfRange("slo_ms", request.slo_ms(), 0, kMaxSloMs);
  if (!v1::RecomputeCapability_IsValid(request.recompute())) {
    return OutOfRange("recompute", request.recompute(), v1::RECOMPUTE_CAPABILITY_NONE,
                      v1::RECOMPUTE_CAPABILITY_ANY);
  }
  if (request.limit_ms() > kMaxSloMs) {
    return OutOfRange("limit_ms", request.limit_ms(), 0, kMaxSloMs);
  }
  if (request.weight() != 0) {
    if (!(request.weight() >= kMinWeight && request.weight() <= kMaxWeight)) {
      return absl::InvalidArgumentError(absl::StrCat("weight is ", request.weight(), "; ",
                                                     kMinWeight, "..", kMaxWeight,
                                                     " are allowed, and 0 for 1"));
    }
    spec.weight = request.weight();
  }
  spec.slo = absl::Milliseconds(request.slo_ms());
  spec.limit = absl::Milliseconds(std::max(request.slo_ms(), request.limit_ms()));
  if (request.tail_tokens() > limits.max_tokens) {
    return OutOfRange("tail_tokens", request.tail_tokens(), 0, limits.max_tokens);
  }
  spec.num_tokens = static_cast<uint32_t>(request.token_ids_size()) + request.tail_tokens();
  spec.capability = static_cast<adapt::RecomputeCapability>(request.recompute());
  ASSIGN_OR_RETURN(spec.context,
                   ToContext(request.identity(), request.token_ids(), profile_id, limits));
  const uint32_t chunk_tokens = spec.context.descriptor.chunk_tokens;
  const size_t full_tokens = spec.context.chunk_keys.size() * chunk_tokens;
  if (request.skip_tokens() > full_tokens) {
    return OutOfRange("skip_tokens", request.skip_tokens(), 0, full_tokens);
  }
  if (request.skip_tokens() % layout.block_tokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat("skip_tokens is ", request.skip_tokens(),
                                                   ", not a multiple of the pool's block_tokens ",
                                                   layout.block_tokens));
  }
  spec.skip_chunks = request.skip_tokens() / chunk_tokens;
  spec.skip_blocks = request.skip_tokens() / layout.block_tokens;
  ASSIGN_OR_RETURN(spec.block_ids,
                   ToBlocks(request.block_ids(), static_cast<size_t>(request.token_ids_size()),
                            spec.context, layout, spec.skip_blocks));
  return spec;
}

std::string PrefillModel(const codec::NamespaceDescriptor& descriptor) {
  return absl::StrCat(descriptor.model, "@", descriptor.revision);
}

absl::StatusOr<PrefillArguments> CheckedPrefill(const v1::ReportPrefillRequest& request) {
  codec::NamespaceDescriptor descriptor;
  descriptor.model = request.identity().model();
  descriptor.revision = request.identity().revision();
  descriptor.chunk_tokens = codec::NamespaceDescriptor::kMinChunkTokens;
  RETURN_IF_ERROR(descriptor.Validate());
  if (request.timings_size() > kMaxTimings) {
    return OutOfRange("number of timings", request.timings_size(), 0, kMaxTimings);
  }
  PrefillArguments arguments;
  arguments.model = PrefillModel(descriptor);
  for (int i = 0; i < request.timings_size(); ++i) {
    const v1::PrefillTiming& timing = request.timings(i);
    if (!(timing.ms() > 0 && timing.ms() <= kMaxPrefillMs)) {
      return absl::InvalidArgumentError(absl::StrCat("timings[", i, "].ms is ", timing.ms(),
                                                     "; more than 0 and at most ", kMaxPrefillMs,
                                                     " are allowed"));
    }
    arguments.timings.push_back({timing.new_tokens(), timing.context_tokens(),
                                 static_cast<adapt::TimeUs>(timing.ms() * 1e3)});
  }
  return arguments;
}

absl::StatusOr<SaveArguments> CheckedSave(const v1::SaveRequest& request, const BlockLayout& layout,
                                          const codec::Digest& profile_id,
                                          const RequestLimits& limits) {
  SaveArguments spec;
  ASSIGN_OR_RETURN(spec.request_id, ToRequestId(request.request_id()));
  ASSIGN_OR_RETURN(spec.context,
                   ToContext(request.identity(), request.token_ids(), profile_id, limits));
  const uint64_t chunk_bytes =
      uint64_t{layout.geometry.bytes_per_token()} * spec.context.descriptor.chunk_tokens;
  if (chunk_bytes > limits.max_chunk_bytes) {
    return OutOfRange("bytes of a chunk", chunk_bytes, 1, limits.max_chunk_bytes);
  }
  ASSIGN_OR_RETURN(spec.block_ids,
                   ToBlocks(request.block_ids(), static_cast<size_t>(request.token_ids_size()),
                            spec.context, layout, /*first_block=*/0));
  spec.lossless = request.lossless();
  return spec;
}

absl::StatusOr<QueryArguments> CheckedQuery(const v1::QueryRequest& request,
                                            const codec::Digest& profile_id,
                                            const RequestLimits& limits) {
  if (request.timeout_ms() == 0 || request.timeout_ms() > kMaxQueryMs) {
    return OutOfRange("timeout_ms", request.timeout_ms(), 1, kMaxQueryMs);
  }
  if (request.slo_ms() > kMaxSloMs) return OutOfRange("slo_ms", request.slo_ms(), 0, kMaxSloMs);
  QueryArguments spec;
  spec.timeout = absl::Milliseconds(request.timeout_ms());
  spec.slo = absl::Milliseconds(request.slo_ms() == 0 ? kMaxSloMs : request.slo_ms());
  spec.num_tokens = static_cast<uint32_t>(request.token_ids_size());
  ASSIGN_OR_RETURN(spec.context,
                   ToContext(request.identity(), request.token_ids(), profile_id, limits));
  return spec;
}

}  // namespace sluice::client
