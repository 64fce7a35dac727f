#include "server/validate.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::server {

namespace {

constexpr uint64_t kMaxIdleMs = uint64_t{10} * 365 * 24 * 3600 * 1000;
constexpr uint64_t kMinChunkBytes = codec::kHeaderPrefixBytes;

absl::StatusOr<std::vector<Digest>> ReadKeys(
    const google::protobuf::RepeatedPtrField<std::string>& keys, const Limits& limits) {
  if (static_cast<size_t>(keys.size()) > limits.max_keys_per_request) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "chunk_keys: ", keys.size(),
        " keys, at most max_keys_per_request = ", limits.max_keys_per_request, " are accepted"));
  }
  std::vector<Digest> digests;
  digests.reserve(keys.size());
  for (const std::string& key : keys) {
    auto digest = codec::DigestFromBytes(key, "chunk_keys");
    RETURN_IF_ERROR(digest.status());
    digests.push_back(*digest);
  }
  return digests;
}

absl::StatusOr<codec::NamespaceDescriptor> ReadDescriptor(const v1::NamespaceDescriptor& message) {
  codec::NamespaceDescriptor descriptor;
  descriptor.model = message.model();
  descriptor.revision = message.revision();
  descriptor.adapter = message.adapter();
  descriptor.tenant = message.tenant();
  descriptor.salt = message.salt();
  descriptor.chunk_tokens = message.chunk_tokens();
  ASSIGN_OR_RETURN(descriptor.profile_id,
                   codec::DigestFromBytes(message.profile_id(), "namespace.profile_id"));
  if (absl::Status status = descriptor.Validate(); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("namespace: ", status.message()));
  }
  return descriptor;
}

absl::Status CheckPayload(const std::string& payload, uint64_t offset, uint64_t checksum,
                          const Limits& limits) {
  if (payload.empty() || payload.size() > limits.max_frame_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload: ", payload.size(),
                     " bytes, must be 1 .. max_frame_bytes = ", limits.max_frame_bytes));
  }
  if (codec::Checksum(std::as_bytes(std::span(payload))) != checksum) {
    return absl::DataLossError(
        absl::StrCat("checksum: does not match the payload at offset ", offset));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Digest> ReadNamespaceDigest(const std::string& bytes) {
  return codec::DigestFromBytes(bytes, "namespace_digest");
}

absl::StatusOr<LookupQuery> ReadLookup(const v1::LookupRequest& request, const Limits& limits) {
  LookupQuery query;
  ASSIGN_OR_RETURN(query.namespace_digest, ReadNamespaceDigest(request.namespace_digest()));
  ASSIGN_OR_RETURN(query.keys, ReadKeys(request.chunk_keys(), limits));
  return query;
}

absl::StatusOr<FetchOpening> ReadFetchOpen(const v1::FetchOpen& open) {
  FetchOpening opening;
  ASSIGN_OR_RETURN(opening.namespace_digest, ReadNamespaceDigest(open.namespace_digest()));
  if (open.load_id().size() > kMaxLoadIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("load_id: ", open.load_id().size(), " bytes, at most ", kMaxLoadIdBytes));
  }
  // Goes into a log line: nothing in it may look like another field.
  opening.load_id = open.load_id();
  std::ranges::replace_if(
      opening.load_id, [](unsigned char c) { return !absl::ascii_isgraph(c) || c == '"'; }, '_');
  return opening;
}

absl::StatusOr<Ask> ReadFetchAsk(const v1::FetchAsk& message, absl::Time now) {
  Ask ask;
  if (message.ask_id() == 0) return absl::InvalidArgumentError("ask_id: must not be 0");
  ask.id = message.ask_id();
  ASSIGN_OR_RETURN(ask.chunk_key, codec::DigestFromBytes(message.chunk_key(), "chunk_key"));
  if (message.num_layers() == 0) return absl::InvalidArgumentError("num_layers: must not be 0");
  if (message.first_layer() > std::numeric_limits<uint32_t>::max() - message.num_layers()) {
    return absl::InvalidArgumentError("first_layer: out of range");
  }
  ask.with_header = message.with_header();
  ask.first_layer = message.first_layer();
  ask.num_layers = message.num_layers();
  switch (message.fetch_class()) {
    case v1::FETCH_CLASS_BASE:
      ask.fetch_class = FetchClass::kBase;
      break;
    case v1::FETCH_CLASS_REFINEMENT:
      ask.fetch_class = FetchClass::kRefinement;
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("fetch_class: ", static_cast<int>(message.fetch_class()),
                       " is neither BASE (1) nor REFINEMENT (2)"));
  }
  ask.arrived_at = now;
  if (message.deadline_ms() > 0) ask.deadline = now + absl::Milliseconds(message.deadline_ms());
  return ask;
}

absl::StatusOr<Announcement> ReadBeginPut(const v1::BeginPutRequest& request,
                                          const Limits& limits) {
  Announcement announcement;
  ASSIGN_OR_RETURN(announcement.descriptor, ReadDescriptor(request.namespace_()));
  announcement.id.namespace_digest = codec::NamespaceDigest(announcement.descriptor);
  ASSIGN_OR_RETURN(announcement.id.key, codec::DigestFromBytes(request.chunk_key(), "chunk_key"));
  if (!request.parent_key().empty()) {
    ASSIGN_OR_RETURN(announcement.parent_key,
                     codec::DigestFromBytes(request.parent_key(), "parent_key"));
  }
  if (request.total_bytes() < kMinChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_bytes: ", request.total_bytes(), ", at least ", kMinChunkBytes));
  }
  if (request.total_bytes() > limits.max_chunk_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("total_bytes: ", request.total_bytes(),
                     ", at most max_chunk_bytes = ", limits.max_chunk_bytes));
  }
  announcement.total_bytes = request.total_bytes();
  return announcement;
}

absl::Status CheckPutFrame(const v1::PutFrameRequest& request, const Limits& limits) {
  if (request.upload_id() == 0) return absl::InvalidArgumentError("upload_id: must not be 0");
  return CheckPayload(request.payload(), request.offset(), request.checksum(), limits);
}

absl::StatusOr<ProfileOpening> ReadPutProfile(const v1::PutProfileRequest& first,
                                              const Limits& limits) {
  ProfileOpening opening;
  ASSIGN_OR_RETURN(opening.id, codec::DigestFromBytes(first.profile_id(), "profile_id"));
  opening.total_bytes = first.frame().total_bytes();
  if (opening.total_bytes == 0) return absl::InvalidArgumentError("total_bytes: must not be 0");
  if (opening.total_bytes > limits.max_profile_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("total_bytes: ", opening.total_bytes,
                     ", at most max_profile_bytes = ", limits.max_profile_bytes));
  }
  return opening;
}

absl::Status CheckProfileFrame(const v1::ProfileFrame& frame, uint64_t expected_offset,
                               const Limits& limits) {
  if (frame.offset() != expected_offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset: ", frame.offset(), " sent, ", expected_offset, " expected"));
  }
  return CheckPayload(frame.payload(), frame.offset(), frame.checksum(), limits);
}

absl::StatusOr<Selection> ReadSelector(const v1::Selector& selector, const Limits& limits) {
  Selection selection;
  ASSIGN_OR_RETURN(selection.namespace_digest, ReadNamespaceDigest(selector.namespace_digest()));
  ASSIGN_OR_RETURN(selection.keys, ReadKeys(selector.chunk_keys(), limits));
  selection.idle_at_least = absl::Milliseconds(std::min(selector.idle_at_least_ms(), kMaxIdleMs));
  return selection;
}

absl::StatusOr<PageQuery> ReadListChunks(const v1::ListChunksRequest& request,
                                         const Limits& limits) {
  PageQuery query;
  ASSIGN_OR_RETURN(query.namespace_digest, ReadNamespaceDigest(request.namespace_digest()));
  if (request.page_size() > limits.max_keys_per_request) {
    return absl::ResourceExhaustedError(
        absl::StrCat("page_size: ", request.page_size(),
                     ", at most max_keys_per_request = ", limits.max_keys_per_request));
  }
  query.limit = request.page_size() == 0 ? limits.max_keys_per_request : request.page_size();
  if (!request.after_key().empty()) {
    ASSIGN_OR_RETURN(query.after, codec::DigestFromBytes(request.after_key(), "after_key"));
  }
  return query;
}

}  // namespace sluice::server
