// Checks a container while it streams in: header, identity, the checksum of every segment, exact
// length.
//
// One thread at a time. Holds the header and one checksum state; segments are never kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store.h"

struct XXH3_state_s;

namespace sluice::server {

// Checks that a header is that of chunk `id`, as a member of the namespace that `descriptor`
// describes.
absl::Status CheckIdentity(const codec::ChunkHeader& header, const ChunkId& id,
                           const codec::NamespaceDescriptor& descriptor);

class ContainerVerifier {
 public:
  ContainerVerifier(const ChunkId& id, const codec::NamespaceDescriptor& descriptor,
                    uint64_t total_bytes);
  ~ContainerVerifier();

  // The next bytes. InvalidArgument: not the chunk that was announced; DataLoss: damaged.
  absl::Status Append(std::span<const std::byte> bytes);
  // After the last byte.
  absl::StatusOr<HeaderPtr> Finish();

 private:
  // Both take what they need from the front of `bytes`.
  absl::Status AppendToHeader(std::span<const std::byte>& bytes);
  absl::Status AppendToSegment(std::span<const std::byte>& bytes);
  absl::Status CloseFullSegments();

  const ChunkId id_;
  const codec::NamespaceDescriptor descriptor_;
  const uint64_t total_bytes_;
  uint64_t received_bytes_ = 0;
  std::string header_bytes_;
  size_t header_size_ = codec::kHeaderPrefixBytes;  // of what must arrive before the next step
  bool header_size_known_ = false;
  HeaderPtr header_;  // null until the header has arrived
  size_t layer_ = 0;
  size_t group_ = 0;
  uint64_t segment_received_ = 0;
  struct StateDeleter {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, StateDeleter> state_;
};

}  // namespace sluice::server
