#include "server/service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"
#include "server/service_status.h"
#include "server/validate.h"

namespace sluice::server {

namespace {

constexpr uint64_t kMinMessageBytes = 16 << 20;  // manifests and lists, whatever the other limits
constexpr uint64_t kMessageOverheadBytes = 64
                                           << 10;  // everything in a message but its largest field
constexpr uint64_t kKeyBytes = 34;                 // a digest in a repeated field

std::string ToBytes(const Digest& digest) { return std::string(codec::DigestBytes(digest)); }

void FillManifest(const codec::ChunkHeader& header, v1::ChunkManifest* manifest) {
  manifest->set_found(true);
  manifest->set_start_token(header.start_token);
  manifest->set_num_tokens(header.num_tokens);
  manifest->set_header_bytes(header.header_bytes);
  manifest->set_total_bytes(header.total_bytes());
  for (const codec::LayerEntry& layer : header.layers) {
    v1::LayerManifest* out = manifest->add_layers();
    out->set_level(layer.level);
    out->set_mean_error(layer.mean_error);
    for (const codec::SegmentEntry& segment : layer.segments) out->add_group_bytes(segment.bytes);
  }
}

void FillDescriptor(const codec::NamespaceDescriptor& descriptor, v1::NamespaceDescriptor* out) {
  out->set_model(descriptor.model);
  out->set_revision(descriptor.revision);
  out->set_adapter(descriptor.adapter);
  out->set_tenant(descriptor.tenant);
  out->set_salt(descriptor.salt);
  out->set_chunk_tokens(descriptor.chunk_tokens);
  out->set_profile_id(ToBytes(descriptor.profile_id));
}

void FillChunk(const ChunkSummary& chunk, absl::Time now, v1::ChunkInfo* out) {
  const codec::ChunkHeader& header = *chunk.header;
  const bool lossless = header.LayerOfLevel(codec::kLossless) >= 0;
  out->set_chunk_key(ToBytes(chunk.id.key));
  out->set_start_token(header.start_token);
  out->set_num_tokens(header.num_tokens);
  out->set_bytes(header.total_bytes());
  out->set_idle_ms(std::max<int64_t>(0, absl::ToInt64Milliseconds(now - chunk.used_at)));
  out->set_pinned(chunk.pinned);
  out->set_lossy_levels(header.layers.size() - lossless);
  out->set_lossless(lossless);
}

}  // namespace

std::string ServerVersion() { return "sluiced " SLUICE_VERSION; }

uint64_t MaxMessageBytes(const Limits& limits) {
  return std::max({kMinMessageBytes, uint64_t{limits.max_frame_bytes},
                   limits.max_keys_per_request * kKeyBytes}) +
         kMessageOverheadBytes;
}

StoreService::StoreService(Store* store, ChunkCache* cache, const Limits& limits, Clock clock)
    : store_(store),
      cache_(cache),
      limits_(limits),
      clock_(std::move(clock)),
      started_at_(clock_()),
      uploads_(limits.max_uploads, limits.max_upload_bytes,
               absl::Milliseconds(limits.upload_ttl_ms)),
      streams_(limits.max_streams) {}

void StoreService::Tick() {
  const absl::Time now = clock_();
  uploads_.Reap(now);
  store_->DropUnusedProfiles();
  streams_.CancelSilent(now - absl::Milliseconds(limits_.upload_ttl_ms));
}

void StoreService::StartDrain() { draining_ = true; }

size_t StoreService::EndIdleStreams() {
  streams_.CancelIdleLoads();
  return streams_.size();
}

absl::Status StoreService::Gate() const {
  return draining_ ? absl::UnavailableError("the server is stopping; try another one or later")
                   : absl::OkStatus();
}

grpc::Status StoreService::GetCapabilities(grpc::ServerContext*, const v1::GetCapabilitiesRequest*,
                                           v1::GetCapabilitiesResponse* response) {
  response->set_server(ServerVersion());
  response->set_container_version(codec::kContainerVersion);
  response->set_max_frame_bytes(limits_.max_frame_bytes);
  response->set_max_keys_per_request(limits_.max_keys_per_request);
  response->set_max_chunk_bytes(limits_.max_chunk_bytes);
  response->set_max_asks_in_flight(limits_.max_asks_in_flight);
  response->set_max_profile_bytes(limits_.max_profile_bytes);
  response->set_max_message_bytes(MaxMessageBytes(limits_));
  return grpc::Status::OK;
}

grpc::Status StoreService::Lookup(grpc::ServerContext*, const v1::LookupRequest* request,
                                  v1::LookupResponse* response) {
  return ToGrpc(DoLookup(*request, *response));
}

absl::Status StoreService::DoLookup(const v1::LookupRequest& request,
                                    v1::LookupResponse& response) {
  RETURN_IF_ERROR(Gate());
  ASSIGN_OR_RETURN(const LookupQuery query, ReadLookup(request, limits_));
  uint64_t found = 0;
  for (const HeaderPtr& header : store_->Lookup(query.namespace_digest, query.keys)) {
    v1::ChunkManifest* manifest = response.add_chunks();
    if (header == nullptr) continue;
    FillManifest(*header, manifest);
    ++found;
  }
  lookup_keys_ += query.keys.size();
  lookup_found_ += found;
  if (response.ByteSizeLong() > MaxMessageBytes(limits_)) {
    response.Clear();
    return absl::ResourceExhaustedError(absl::StrCat(
        "chunk_keys: the manifests exceed max_message_bytes = ", MaxMessageBytes(limits_),
        "; ask for fewer keys at a time"));
  }
  return absl::OkStatus();
}

grpc::Status StoreService::BeginPut(grpc::ServerContext*, const v1::BeginPutRequest* request,
                                    v1::BeginPutResponse* response) {
  return ToGrpc(DoBeginPut(*request, *response));
}

absl::Status StoreService::DoBeginPut(const v1::BeginPutRequest& request,
                                      v1::BeginPutResponse& response) {
  RETURN_IF_ERROR(Gate());
  ASSIGN_OR_RETURN(Announcement announcement, ReadBeginPut(request, limits_));
  const absl::Time now = clock_();
  const uint64_t bytes = announcement.total_bytes;
  uploads_.Reap(now);
  RETURN_IF_ERROR(uploads_.Admit(bytes));
  absl::StatusOr<BeginPutResult> begun = store_->BeginPut(std::move(announcement));
  if (!begun.ok() || begun->session == nullptr) uploads_.Withdraw(bytes);
  RETURN_IF_ERROR(begun.status());
  response.set_already_stored(begun->already_stored);
  response.set_profile_needed(begun->profile_needed);
  if (begun->session == nullptr) return absl::OkStatus();
  response.set_upload_id(uploads_.Add(std::move(begun->session), bytes, now));
  response.set_upload_ttl_ms(limits_.upload_ttl_ms);
  return absl::OkStatus();
}

grpc::Status StoreService::CommitPut(grpc::ServerContext*, const v1::CommitPutRequest* request,
                                     v1::CommitPutResponse* response) {
  const auto result = uploads_.Commit(request->upload_id());
  if (!result.ok()) return ToGrpc(result.status());
  response->set_already_stored(*result == CommitResult::kAlreadyStored);
  committed_chunks_ += *result == CommitResult::kStored;
  return grpc::Status::OK;
}

grpc::Status StoreService::Delete(grpc::ServerContext*, const v1::DeleteRequest* request,
                                  v1::DeleteResponse* response) {
  return ToGrpc(DoDelete(*request, *response));
}

absl::Status StoreService::DoDelete(const v1::DeleteRequest& request,
                                    v1::DeleteResponse& response) {
  RETURN_IF_ERROR(Gate());
  ASSIGN_OR_RETURN(const Selection selection, ReadSelector(request.selector(), limits_));
  ASSIGN_OR_RETURN(const DeleteCounts counts, store_->Delete(selection, request.include_pinned()));
  response.set_deleted_chunks(counts.deleted_chunks);
  response.set_deleted_bytes(counts.deleted_bytes);
  response.set_pinned_chunks(counts.pinned_chunks);
  return absl::OkStatus();
}

grpc::Status StoreService::Pin(grpc::ServerContext*, const v1::PinRequest* request,
                               v1::PinResponse* response) {
  const auto selection = ReadSelector(request->selector(), limits_);
  if (!selection.ok()) return ToGrpc(selection.status());
  const auto matched = store_->Pin(*selection, request->pinned());
  if (matched.ok()) response->set_matched_chunks(*matched);
  return ToGrpc(matched.status());
}

grpc::Status StoreService::Touch(grpc::ServerContext*, const v1::TouchRequest* request,
                                 v1::TouchResponse* response) {
  const auto selection = ReadSelector(request->selector(), limits_);
  if (!selection.ok()) return ToGrpc(selection.status());
  const auto matched = store_->Touch(*selection);
  if (matched.ok()) response->set_matched_chunks(*matched);
  return ToGrpc(matched.status());
}

grpc::Status StoreService::ListNamespaces(grpc::ServerContext*, const v1::ListNamespacesRequest*,
                                          v1::ListNamespacesResponse* response) {
  for (const NamespaceSummary& space : store_->ListNamespaces()) {
    v1::NamespaceInfo* info = response->add_namespaces();
    info->set_namespace_digest(ToBytes(space.digest));
    FillDescriptor(space.descriptor, info->mutable_namespace_());
    info->set_chunks(space.chunks);
    info->set_bytes(space.bytes);
    info->set_profile_bytes(space.profile_bytes);
  }
  return grpc::Status::OK;
}

grpc::Status StoreService::ListChunks(grpc::ServerContext*, const v1::ListChunksRequest* request,
                                      v1::ListChunksResponse* response) {
  return ToGrpc(DoListChunks(*request, *response));
}

absl::Status StoreService::DoListChunks(const v1::ListChunksRequest& request,
                                        v1::ListChunksResponse& response) {
  ASSIGN_OR_RETURN(const PageQuery query, ReadListChunks(request, limits_));
  // One more than asked tells whether this is the last page.
  ASSIGN_OR_RETURN(std::vector<ChunkSummary> chunks,
                   store_->ListChunks(query.namespace_digest, query.after, query.limit + 1));
  const bool more = chunks.size() > query.limit;
  if (more) chunks.pop_back();
  const absl::Time now = clock_();
  for (const ChunkSummary& chunk : chunks) FillChunk(chunk, now, response.add_chunks());
  if (more) response.set_next_after_key(ToBytes(chunks.back().id.key));
  return absl::OkStatus();
}

grpc::Status StoreService::Stats(grpc::ServerContext*, const v1::StatsRequest*,
                                 v1::StatsResponse* response) {
  const StoreUsage store = store_->Usage();
  const CacheUsage cache = cache_->Usage();
  response->set_uptime_ms(absl::ToInt64Milliseconds(clock_() - started_at_));
  response->set_namespaces(store.namespaces);
  response->set_chunks(store.chunks);
  response->set_disk_bytes(store.bytes);
  response->set_disk_quota_bytes(store.quota_bytes);
  response->set_cache_bytes(cache.bytes);
  response->set_cache_limit_bytes(cache.limit_bytes);
  response->set_cache_hits(cache.hits);
  response->set_cache_misses(cache.misses);
  response->set_lookup_keys(lookup_keys_);
  response->set_lookup_found(lookup_found_);
  response->set_fetch_streams(streams_.fetch_count());
  response->set_sent_bytes(sent_bytes_);
  response->set_received_bytes(received_bytes_);
  response->set_committed_chunks(committed_chunks_);
  response->set_evicted_chunks(store.evicted_chunks);
  response->set_damaged(damaged_);
  response->set_uploads(uploads_.size());
  response->set_profiles(store.profiles);
  response->set_profile_bytes(store.profile_bytes);
  response->set_profile_quota_bytes(store.profile_quota_bytes);
  return grpc::Status::OK;
}

}  // namespace sluice::server
