// The edge: turns messages from the wire into the server's own types, or says which field is wrong.
//
// Pure functions. Every field of every request is checked here and nowhere else. InvalidArgument
// names the field; ResourceExhausted names the limit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/ask_queue.h"
#include "server/config.h"
#include "server/store.h"
#include "sluice/v1/store.pb.h"

namespace sluice::server {

inline constexpr size_t kMaxLoadIdBytes = 64;

struct LookupQuery {
  Digest namespace_digest = {};
  std::vector<Digest> keys;
};
absl::StatusOr<LookupQuery> ReadLookup(const v1::LookupRequest& request, const Limits& limits);

struct FetchOpening {
  Digest namespace_digest = {};
  std::string load_id;  // printable ASCII without spaces or quotes
};
absl::StatusOr<FetchOpening> ReadFetchOpen(const v1::FetchOpen& open);
// `now` is the time of arrival.
absl::StatusOr<Ask> ReadFetchAsk(const v1::FetchAsk& ask, absl::Time now);

absl::StatusOr<Announcement> ReadBeginPut(const v1::BeginPutRequest& request, const Limits& limits);
// Checks size and checksum (DataLoss) of a frame.
absl::Status CheckPutFrame(const v1::PutFrameRequest& request, const Limits& limits);

struct ProfileOpening {
  Digest id = {};
  uint64_t total_bytes = 0;
};
// `first` opens the stream; its frame is checked like the others.
absl::StatusOr<ProfileOpening> ReadPutProfile(const v1::PutProfileRequest& first,
                                              const Limits& limits);
// Checks offset, size and checksum (DataLoss) of a frame.
absl::Status CheckProfileFrame(const v1::ProfileFrame& frame, uint64_t expected_offset,
                               const Limits& limits);

absl::StatusOr<Selection> ReadSelector(const v1::Selector& selector, const Limits& limits);

struct PageQuery {
  Digest namespace_digest = {};
  std::optional<Digest> after;
  size_t limit = 0;
};
absl::StatusOr<PageQuery> ReadListChunks(const v1::ListChunksRequest& request,
                                         const Limits& limits);

absl::StatusOr<Digest> ReadNamespaceDigest(const std::string& bytes);

}  // namespace sluice::server
