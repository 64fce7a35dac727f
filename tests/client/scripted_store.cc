#include "tests/client/scripted_store.h"

#include <cstring>
#include <random>

#include "absl/time/clock.h"
#include "codec/decoder.h"

namespace sluice::client {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

uint16_t ToBf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x8000) >> 16);
}

codec::Geometry MakeGeometry(uint32_t num_model_layers) {
  codec::Geometry geometry;
  geometry.rotary_tables.push_back(codec::MakeRotaryTable(10000, 16, codec::RotaryLayout::kHalf));
  for (uint32_t layer = 0; layer < num_model_layers; ++layer) {
    for (codec::PlaneKind kind : {codec::PlaneKind::kKey, codec::PlaneKind::kValue}) {
      codec::PlaneSpec plane;
      plane.kind = kind;
      plane.model_layer = layer;
      plane.num_heads = 2;
      plane.head_dim = 16;
      if (kind == codec::PlaneKind::kKey) plane.rotary_table = 0;
      geometry.planes.push_back(plane);
    }
  }
  return geometry;
}

}  // namespace

TestContext MakeContext(uint32_t num_chunks, uint32_t seed, uint32_t num_model_layers) {
  TestContext context{codec::Profile::Builtin(MakeGeometry(num_model_layers)).value(), {}, {}, {}};
  codec::NamespaceDescriptor descriptor;
  descriptor.model = "test";
  descriptor.chunk_tokens = TestContext::kChunkTokens;
  descriptor.profile_id = context.profile.id();
  context.namespace_digest = codec::NamespaceDigest(descriptor);
  std::vector<uint32_t> tokens(num_chunks * TestContext::kChunkTokens);
  std::mt19937 random(seed);
  for (uint32_t& token : tokens) token = random() % 50000;
  context.chunk_keys =
      codec::ChunkKeys(context.namespace_digest, tokens, TestContext::kChunkTokens);
  std::normal_distribution<float> value(0, 1);
  for (uint32_t chunk = 0; chunk < num_chunks; ++chunk) {
    std::vector<std::string> planes;
    for (const codec::PlaneSpec& plane : context.profile.geometry().planes) {
      std::string bytes;
      for (size_t i = 0; i < plane.channels() * TestContext::kChunkTokens; ++i) {
        const uint16_t element = ToBf16(value(random));
        bytes.append(reinterpret_cast<const char*>(&element), sizeof(element));
      }
      planes.push_back(std::move(bytes));
    }
    std::vector<std::span<const std::byte>> views;
    for (const std::string& plane : planes) views.push_back(AsBytes(plane));
    const codec::ChunkIdentity identity = {context.chunk_keys[chunk], context.namespace_digest,
                                           chunk * TestContext::kChunkTokens};
    context.containers.push_back(codec::EncodeChunk(context.profile, identity, views,
                                                    TestContext::kChunkTokens, {true, true})
                                     .value()
                                     .container);
  }
  return context;
}

LoadOptions TestContext::Options(absl::Duration slo) const {
  LoadOptions options;
  options.namespace_digest = namespace_digest;
  options.chunk_keys = chunk_keys;
  options.chunk_tokens = kChunkTokens;
  options.slo = slo;
  options.capability = adapt::RecomputeCapability::kAny;
  return options;
}

std::string TestContext::Decoded(uint32_t chunk, size_t group, codec::Level level) const {
  const std::string& container = containers[chunk];
  const codec::ChunkHeader header = codec::ParseChunkHeader(AsBytes(container)).value();
  const int last = header.LayerOfLevel(level);
  std::vector<std::span<const std::byte>> segments;
  for (int layer = level == codec::kLossless ? last : 0; layer <= last; ++layer) {
    segments.push_back(AsBytes(container).subspan(header.SegmentOffset(layer, group),
                                                  header.layers[layer].segments[group].bytes));
  }
  const codec::GroupSpec& spec = profile.groups()[group];
  std::vector<std::vector<std::byte>> planes;
  for (uint32_t i = 0; i < spec.num_planes; ++i) {
    planes.emplace_back(profile.geometry().planes[spec.first_plane + i].bytes_per_token() *
                        kChunkTokens);
  }
  const std::vector<std::span<std::byte>> views(planes.begin(), planes.end());
  const absl::Status status = codec::DecodeGroup(profile, header, group, level, segments, views);
  if (!status.ok()) return std::string(status.message());
  std::string bytes;
  for (const std::vector<std::byte>& plane : planes) {
    bytes.append(reinterpret_cast<const char*>(plane.data()), plane.size());
  }
  return bytes;
}

uint64_t TestContext::LevelBytes(uint32_t chunk, codec::Level level) const {
  const codec::ChunkHeader header = codec::ParseChunkHeader(AsBytes(containers[chunk])).value();
  const int last = header.LayerOfLevel(level);
  uint64_t bytes = header.header_bytes;
  for (int layer = level == codec::kLossless ? last : 0; layer <= last; ++layer) {
    bytes += header.layers[layer].bytes();
  }
  return bytes;
}

ChunkManifest ManifestOf(const std::string& container) {
  const codec::ChunkHeader header = codec::ParseChunkHeader(AsBytes(container)).value();
  ChunkManifest manifest;
  manifest.found = true;
  manifest.start_token = header.start_token;
  manifest.num_tokens = header.num_tokens;
  manifest.header_bytes = header.header_bytes;
  manifest.total_bytes = header.total_bytes();
  for (const codec::LayerEntry& entry : header.layers) {
    ChunkManifest::Layer layer;
    layer.level = entry.level;
    layer.mean_error = entry.mean_error;
    layer.bytes = entry.bytes();
    for (const codec::SegmentEntry& segment : entry.segments) {
      layer.group_bytes.push_back(segment.bytes);
    }
    manifest.layers.push_back(std::move(layer));
  }
  return manifest;
}

// Answers each ask at once; what it has not been told to send does not come.
class ScriptedStore::Stream final : public FetchStream {
 public:
  explicit Stream(ScriptedStore& store) : store_(store) {}

  absl::Status Ask(const FetchAsk& ask) override {
    std::vector<FetchFrame> frames = store_.Answer(ask);
    absl::MutexLock lock(&mutex_);
    for (FetchFrame& frame : frames) frames_.push_back(std::move(frame));
    return absl::OkStatus();
  }

  absl::Status Cancel(uint32_t ask_id) override { return absl::OkStatus(); }

  absl::StatusOr<FetchFrame> Next() override {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Stream::Ready));
    if (closed_) return absl::CancelledError("closed");
    if (Broken()) return absl::UnavailableError("the server died");
    ++sent_;
    FetchFrame frame = std::move(frames_.front());
    frames_.pop_front();
    return frame;
  }

  void Close() override {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  bool Broken() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return store_.script_.break_after_frames >= 0 && sent_ >= store_.script_.break_after_frames;
  }
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || Broken() || !frames_.empty();
  }

  ScriptedStore& store_;
  absl::Mutex mutex_;
  std::deque<FetchFrame> frames_ ABSL_GUARDED_BY(mutex_);
  int sent_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

ScriptedStore::ScriptedStore(const TestContext& context, Script script)
    : context_(context), script_(std::move(script)) {
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; i < context.containers.size(); ++i) {
    containers_[context.chunk_keys[i]] = context.containers[i];
  }
}

void ScriptedStore::Replace(uint32_t chunk, std::string container) {
  absl::MutexLock lock(&mutex_);
  containers_[context_.chunk_keys[chunk]] = std::move(container);
}

void ScriptedStore::Remove(uint32_t chunk) {
  absl::MutexLock lock(&mutex_);
  containers_.erase(context_.chunk_keys[chunk]);
}

int ScriptedStore::num_lookups() const {
  absl::MutexLock lock(&mutex_);
  return num_lookups_;
}

int ScriptedStore::num_streams() const {
  absl::MutexLock lock(&mutex_);
  return num_streams_;
}

std::vector<FetchAsk> ScriptedStore::asks() const {
  absl::MutexLock lock(&mutex_);
  return asks_;
}

absl::StatusOr<ServerCapabilities> ScriptedStore::GetCapabilities(absl::Time deadline) {
  return absl::UnimplementedError("not scripted");
}

absl::StatusOr<std::vector<ChunkManifest>> ScriptedStore::Lookup(
    const codec::Digest& namespace_digest, std::span<const codec::Digest> keys, absl::Time deadline,
    const std::function<bool()>& /*cancelled*/) {
  absl::MutexLock lock(&mutex_);
  ++num_lookups_;
  if (script_.lookup_hangs) {
    const bool never = false;
    mutex_.AwaitWithDeadline(absl::Condition(&never), deadline);
    return absl::DeadlineExceededError("lookup: deadline");
  }
  if (!script_.lookup_error.ok()) return script_.lookup_error;
  std::vector<ChunkManifest> manifests;
  for (const codec::Digest& key : keys) {
    const auto found = containers_.find(key);
    manifests.push_back(found == containers_.end() ? ChunkManifest() : ManifestOf(found->second));
  }
  if (script_.change_manifests) script_.change_manifests(manifests);
  return manifests;
}

absl::StatusOr<std::unique_ptr<FetchStream>> ScriptedStore::OpenFetch(
    const codec::Digest& namespace_digest, const std::string& load_id, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  if (num_streams_ >= script_.max_streams) return absl::UnavailableError("connection refused");
  ++num_streams_;
  return std::make_unique<Stream>(*this);
}

absl::StatusOr<PutResult> ScriptedStore::Put(const ChunkPut& chunk, absl::Time deadline) {
  return absl::UnimplementedError("not scripted");
}

absl::StatusOr<uint64_t> ScriptedStore::PutProfile(const codec::Digest& id, std::string_view bytes,
                                                   absl::Time deadline,
                                                   const std::function<bool()>& cancelled) {
  return absl::UnimplementedError("not scripted");
}

absl::StatusOr<std::string> ScriptedStore::GetProfile(const codec::Digest& id, uint64_t max_bytes,
                                                      absl::Time deadline,
                                                      const std::function<bool()>& cancelled) {
  return absl::UnimplementedError("not scripted");
}

std::vector<FetchFrame> ScriptedStore::Answer(const FetchAsk& ask) {
  absl::MutexLock lock(&mutex_);
  asks_.push_back(ask);
  std::vector<FetchFrame> frames;
  const auto found = containers_.find(ask.chunk_key);
  if (found == containers_.end()) {
    frames.emplace_back();
    frames.back().ask_id = ask.ask_id;
    frames.back().last = true;
    frames.back().status = absl::NotFoundError("chunk is not stored");
  } else {
    const std::string& container = found->second;
    const codec::ChunkHeader header = codec::ParseChunkHeader(AsBytes(container)).value();
    const auto send = [&](uint64_t offset, uint64_t end) {
      for (; offset < end; offset += script_.frame_bytes) {
        FetchFrame frame;
        frame.ask_id = ask.ask_id;
        frame.offset = offset;
        frame.payload =
            container.substr(offset, std::min<uint64_t>(script_.frame_bytes, end - offset));
        frames.push_back(std::move(frame));
      }
    };
    if (ask.with_header) send(0, header.header_bytes);
    const uint32_t last_layer = ask.first_layer + ask.num_layers - 1;
    send(header.LayerOffset(ask.first_layer),
         header.LayerOffset(last_layer) + header.layers[last_layer].bytes());
    frames.back().last = true;
  }
  if (script_.change_answer) script_.change_answer(ask, frames);
  return frames;
}

}  // namespace sluice::client
