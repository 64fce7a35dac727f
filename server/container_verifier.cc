#include "server/container_verifier.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::server {

namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

absl::Status CheckIdentity(const codec::ChunkHeader& header, const ChunkId& id,
                           const codec::NamespaceDescriptor& descriptor) {
  if (header.chunk_key != id.key) {
    return absl::InvalidArgumentError(absl::StrCat("chunk_key: the container's header says ",
                                                   codec::DigestHex(header.chunk_key),
                                                   ", expected ", codec::DigestHex(id.key)));
  }
  if (header.namespace_digest != id.namespace_digest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "namespace: the container's header says ", codec::DigestHex(header.namespace_digest),
        ", expected ", codec::DigestHex(id.namespace_digest)));
  }
  if (header.profile_id != descriptor.profile_id) {
    return absl::InvalidArgumentError(absl::StrCat(
        "profile_id: the container's header says ", codec::DigestHex(header.profile_id),
        ", the namespace has ", codec::DigestHex(descriptor.profile_id)));
  }
  if (header.num_tokens != descriptor.chunk_tokens ||
      header.start_token % descriptor.chunk_tokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunk_tokens: the container holds ", header.num_tokens, " tokens from ",
        header.start_token, "; only full chunks of ", descriptor.chunk_tokens, " are stored"));
  }
  return absl::OkStatus();
}

void ContainerVerifier::StateDeleter::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

ContainerVerifier::ContainerVerifier(const ChunkId& id,
                                     const codec::NamespaceDescriptor& descriptor,
                                     uint64_t total_bytes)
    : id_(id), descriptor_(descriptor), total_bytes_(total_bytes), state_(XXH3_createState()) {
  XXH3_64bits_reset(state_.get());
}

ContainerVerifier::~ContainerVerifier() = default;

absl::Status ContainerVerifier::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > total_bytes_ - received_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_bytes: more than the announced ", total_bytes_, " bytes were sent"));
  }
  received_bytes_ += bytes.size();
  while (!bytes.empty()) {
    RETURN_IF_ERROR(header_ == nullptr ? AppendToHeader(bytes) : AppendToSegment(bytes));
  }
  return absl::OkStatus();
}

absl::Status ContainerVerifier::AppendToHeader(std::span<const std::byte>& bytes) {
  const size_t take = std::min(bytes.size(), header_size_ - header_bytes_.size());
  header_bytes_.append(reinterpret_cast<const char*>(bytes.data()), take);
  bytes = bytes.subspan(take);
  if (header_bytes_.size() < header_size_) return absl::OkStatus();
  if (!header_size_known_) {
    ASSIGN_OR_RETURN(header_size_, codec::PeekHeaderBytes(AsBytes(header_bytes_)));
    header_size_known_ = true;
    if (header_bytes_.size() < header_size_) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(codec::ChunkHeader header, codec::ParseChunkHeader(AsBytes(header_bytes_)));
  RETURN_IF_ERROR(CheckIdentity(header, id_, descriptor_));
  if (header.total_bytes() != total_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("total_bytes: ", total_bytes_,
                                                   " announced, the container's header says ",
                                                   header.total_bytes()));
  }
  header_ = std::make_shared<const codec::ChunkHeader>(std::move(header));
  std::string().swap(header_bytes_);
  return CloseFullSegments();
}

absl::Status ContainerVerifier::AppendToSegment(std::span<const std::byte>& bytes) {
  // The length was checked against the header's total, so there is a segment for every byte.
  const codec::SegmentEntry& segment = header_->layers[layer_].segments[group_];
  const size_t take = std::min<uint64_t>(bytes.size(), segment.bytes - segment_received_);
  XXH3_64bits_update(state_.get(), bytes.data(), take);
  segment_received_ += take;
  bytes = bytes.subspan(take);
  return CloseFullSegments();
}

absl::Status ContainerVerifier::CloseFullSegments() {
  while (layer_ < header_->layers.size()) {
    const codec::SegmentEntry& segment = header_->layers[layer_].segments[group_];
    if (segment_received_ < segment.bytes) break;
    if (XXH3_64bits_digest(state_.get()) != segment.checksum) {
      return absl::DataLossError(
          absl::StrCat("segment of layer ", layer_, ", group ", group_, ": checksum mismatch"));
    }
    XXH3_64bits_reset(state_.get());
    segment_received_ = 0;
    if (++group_ == header_->num_groups()) {
      group_ = 0;
      ++layer_;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<HeaderPtr> ContainerVerifier::Finish() {
  if (received_bytes_ != total_bytes_ || header_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_bytes: ", total_bytes_, " announced, ", received_bytes_, " received"));
  }
  return header_;
}

}  // namespace sluice::server
