// A storage server as seen by those who load and save. For people's commands see
// client/remote_admin.h.
//
// Thread-safe. Every call ends at its deadline at the latest, and at once when the server is known
// to be away; nothing is retried. Errors name the call and carry the server's own message. What a
// server says is checked here, so callers may rely on the ranges that are named below.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "codec/chunk_key.h"
#include "codec/container.h"

namespace sluice::client {

// Deadlines further away than this are brought nearer.
inline constexpr absl::Duration kMaxCallTime = absl::Minutes(10);
// Largest frame that is sent; servers may ask for smaller ones.
inline constexpr size_t kMaxFrameBytes = size_t{1} << 20;
// Largest frame that is taken from a server.
inline constexpr size_t kMaxReceivedFrameBytes = size_t{16} << 20;

// What a server has of one chunk; `found` false leaves the rest empty. If true: 1 ..
// kMaxLossyLevels + 1 layers, lossy levels 0, 1, ... in order and then kLossless; all layers have
// the same number of groups; header and groups add up to total_bytes.
struct ChunkManifest {
  struct Layer {
    codec::Level level = 0;
    float mean_error = 0;
    uint64_t bytes = 0;  // of all groups
    std::vector<uint32_t> group_bytes;
  };
  bool found = false;
  uint32_t start_token = 0;
  uint32_t num_tokens = 0;
  uint32_t header_bytes = 0;
  uint64_t total_bytes = 0;
  std::vector<Layer> layers;
};

struct ServerCapabilities {
  std::string server;
  uint32_t container_version = 0;
  uint32_t max_frame_bytes = 0;
  uint32_t max_keys_per_request = 0;
  uint64_t max_chunk_bytes = 0;
  uint32_t max_asks_in_flight = 0;
  uint64_t max_profile_bytes = 0;
};

enum class FetchClass { kBase, kRefinement };

struct FetchAsk {
  uint32_t ask_id = 0;  // not 0, unique in the stream
  codec::Digest chunk_key = {};
  bool with_header = false;
  uint32_t first_layer = 0;
  uint32_t num_layers = 1;
  uint32_t deadline_ms = 0;
  FetchClass fetch_class = FetchClass::kBase;
};

struct FetchFrame {
  uint32_t ask_id = 0;
  uint64_t offset = 0;
  std::string
      payload;  // at most kMaxReceivedFrameBytes, its checksum has been verified; empty on error
  bool last = false;
  // Outcome of the ask: OK, NotFound, DataLoss (damaged on the server or on the way),
  // DeadlineExceeded (its deadline passed before its turn), Cancelled, ResourceExhausted (too many
  // asks).
  absl::Status status;
  uint32_t queue_delay_us = 0;
};

// One load's stream. Ask and Cancel from one thread, Next from one (other) thread, Close from any.
// The owner destroys it when none of them is running.
class FetchStream {
 public:
  virtual ~FetchStream() = default;  // closes
  virtual absl::Status Ask(const FetchAsk& ask) = 0;
  virtual absl::Status Cancel(uint32_t ask_id) = 0;
  // Blocks until a frame is there. An error ends the stream: Unavailable, DeadlineExceeded,
  // Cancelled.
  virtual absl::StatusOr<FetchFrame> Next() = 0;
  // Ends the stream at once; Next returns Cancelled.
  virtual void Close() = 0;
};

// One chunk on its way to a server. Refers to what the caller keeps.
struct ChunkPut {
  const codec::NamespaceDescriptor& descriptor;
  codec::Digest chunk_key = {};
  std::optional<codec::Digest> parent_key;  // of the chunk before it in the context
  const std::string& container;
};

struct PutResult {
  bool already_stored = false;
  bool profile_needed = false;  // nothing is stored: put the profile, then the chunk again
  uint64_t sent_bytes = 0;      // of the container
};

class RemoteStore {
 public:
  // `address` as gRPC takes it: "host:port" or "unix:/path". Does not connect yet. After a failure
  // the connection is tried again after 100 ms, and then less and less often, up to every 2 s.
  static std::unique_ptr<RemoteStore> Create(const std::string& address);
  virtual ~RemoteStore() = default;

  virtual const std::string& address() const = 0;
  virtual absl::StatusOr<ServerCapabilities> GetCapabilities(absl::Time deadline) = 0;
  // One entry per key; splits into several requests where the server's limit asks for it.
  // `cancelled` may be null; it is called every 10 ms, and once it says true the answer is
  // Cancelled.
  virtual absl::StatusOr<std::vector<ChunkManifest>> Lookup(
      const codec::Digest& namespace_digest, std::span<const codec::Digest> keys,
      absl::Time deadline, const std::function<bool()>& cancelled) = 0;
  virtual absl::StatusOr<std::unique_ptr<FetchStream>> OpenFetch(
      const codec::Digest& namespace_digest, const std::string& load_id, absl::Time deadline) = 0;
  // Stores one container, in frames of at most kMaxFrameBytes.
  virtual absl::StatusOr<PutResult> Put(const ChunkPut& chunk, absl::Time deadline) = 0;
  // Stores a profile for all namespaces that name it, in frames. Returns the bytes sent, 0 if the
  // server had it. The server forgets it if no chunk that needs it is announced within seconds.
  virtual absl::StatusOr<uint64_t> PutProfile(const codec::Digest& id, std::string_view bytes,
                                              absl::Time deadline,
                                              const std::function<bool()>& cancelled) = 0;
  // A profile's bytes; their digest is `id`. ResourceExhausted if there are more than `max_bytes`.
  virtual absl::StatusOr<std::string> GetProfile(const codec::Digest& id, uint64_t max_bytes,
                                                 absl::Time deadline,
                                                 const std::function<bool()>& cancelled) = 0;
};

// Limits of PutWithProfile.
struct PutTimeouts {
  absl::Duration chunk;
  absl::Duration profile = kMaxCallTime;  // profiles are large
};
// Puts a chunk, and before it the profile if the server asks for it. `profile_bytes` gives the
// profile's bytes, which the caller keeps, or says why it has none.
absl::StatusOr<PutResult> PutWithProfile(
    RemoteStore& store, const ChunkPut& chunk,
    const std::function<absl::StatusOr<std::string_view>()>& profile_bytes,
    const PutTimeouts& timeouts, const std::function<bool()>& cancelled);

}  // namespace sluice::client
