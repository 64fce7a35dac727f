// A storage server without a network, for tests of the loader: it keeps real chunks and answers as
// it is told to. Also the context whose chunks it keeps.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/loader.h"
#include "client/remote_store.h"
#include "codec/encoder.h"

namespace sluice::client {

// A context of random planes with its profile and encoded chunks.
struct TestContext {
  static constexpr uint32_t kChunkTokens = 32;

  codec::Profile profile;
  codec::Digest namespace_digest = {};
  std::vector<codec::Digest> chunk_keys;
  std::vector<std::string> containers;  // three lossy levels and lossless

  LoadOptions Options(absl::Duration slo = absl::Seconds(30)) const;
  std::shared_ptr<const codec::Profile> SharedProfile() const {
    return std::make_shared<const codec::Profile>(profile);
  }
  // What a decode of the chunk's container gives: the group's planes, one after the other.
  std::string Decoded(uint32_t chunk, size_t group, codec::Level level) const;
  // Bytes of the header and the layers that a level needs.
  uint64_t LevelBytes(uint32_t chunk, codec::Level level) const;
};
TestContext MakeContext(uint32_t num_chunks, uint32_t seed, uint32_t num_model_layers = 3);

class ScriptedStore final : public RemoteStore {
 public:
  // How the server behaves. Set before the first call; the functions are called under a lock.
  struct Script {
    size_t frame_bytes = 1000;
    absl::Status lookup_error;
    bool lookup_hangs = false;  // until the deadline
    std::function<void(std::vector<ChunkManifest>&)> change_manifests;
    // Sees the frames that answer an ask before they are sent, and may change or remove them.
    std::function<void(const FetchAsk&, std::vector<FetchFrame>&)> change_answer;
    int break_after_frames = -1;  // then the stream ends with Unavailable; -1: never
    int max_streams = 1000;       // opening one more fails
  };

  ScriptedStore(const TestContext& context, Script script);

  // Replaces or removes a chunk's container.
  void Replace(uint32_t chunk, std::string container);
  void Remove(uint32_t chunk);

  int num_lookups() const;
  int num_streams() const;
  std::vector<FetchAsk> asks() const;

  const std::string& address() const override { return address_; }
  absl::StatusOr<ServerCapabilities> GetCapabilities(absl::Time deadline) override;
  absl::StatusOr<std::vector<ChunkManifest>> Lookup(
      const codec::Digest& namespace_digest, std::span<const codec::Digest> keys,
      absl::Time deadline, const std::function<bool()>& cancelled) override;
  absl::StatusOr<std::unique_ptr<FetchStream>> OpenFetch(const codec::Digest& namespace_digest,
                                                         const std::string& load_id,
                                                         absl::Time deadline) override;
  absl::StatusOr<PutResult> Put(const ChunkPut& chunk, absl::Time deadline) override;
  absl::StatusOr<uint64_t> PutProfile(const codec::Digest& id, std::string_view bytes,
                                      absl::Time deadline,
                                      const std::function<bool()>& cancelled) override;
  absl::StatusOr<std::string> GetProfile(const codec::Digest& id, uint64_t max_bytes,
                                         absl::Time deadline,
                                         const std::function<bool()>& cancelled) override;

 private:
  class Stream;

  std::vector<FetchFrame> Answer(const FetchAsk& ask) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string address_ = "scripted";
  const TestContext& context_;
  const Script script_;
  mutable absl::Mutex mutex_;
  std::map<codec::Digest, std::string> containers_ ABSL_GUARDED_BY(mutex_);
  int num_lookups_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<FetchAsk> asks_ ABSL_GUARDED_BY(mutex_);
};

// Manifest of a container, as a server would give it.
ChunkManifest ManifestOf(const std::string& container);

}  // namespace sluice::client
