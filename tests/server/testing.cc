#include "tests/server/testing.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "codec/digest.h"

namespace sluice::server {

uint64_t TestSeed() {
  static const uint64_t seed = [] {
    const char* text = std::getenv("SLUICE_TEST_SEED");
    const uint64_t value =
        text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
    std::printf("SLUICE_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

Announcement TestChunk::announcement() const {
  return {descriptor, id, parent, container.size(), nullptr};
}

codec::ChunkHeader TestChunk::header() const {
  return *codec::ParseChunkHeader(std::as_bytes(std::span(container)));
}

namespace {

Digest TestKey(uint32_t context, uint32_t index) {
  const std::string name = absl::StrCat("chunk ", context, " ", index);
  return codec::Sha256(std::as_bytes(std::span(name)));
}

}  // namespace

TestChunk MakeChunk(const ChunkShape& shape) {
  TestChunk chunk;
  chunk.profile = shape.profile.empty() ? absl::StrCat("profile of ", shape.model) : shape.profile;
  chunk.descriptor.model = shape.model;
  chunk.descriptor.chunk_tokens = 16;
  chunk.descriptor.profile_id = ProfileId(chunk.profile);
  chunk.id = {codec::NamespaceDigest(chunk.descriptor), TestKey(shape.context, shape.index)};
  if (shape.index > 0) chunk.parent = TestKey(shape.context, shape.index - 1);
  codec::ChunkHeader header;
  header.chunk_key = chunk.id.key;
  header.namespace_digest = chunk.id.namespace_digest;
  header.profile_id = chunk.descriptor.profile_id;
  header.start_token = shape.index * 16;
  header.num_tokens = 16;
  std::mt19937_64 random(TestSeed() + shape.index * 7919 + shape.context * 104729 + shape.variant);
  std::string segments;
  for (size_t layer = 0; layer < shape.segment_bytes.size(); ++layer) {
    codec::LayerEntry& entry = header.layers.emplace_back();
    entry.level =
        shape.lossless && layer + 1 == shape.segment_bytes.size() ? codec::kLossless : layer;
    entry.mean_error = entry.level == codec::kLossless ? 0 : 0.5f / (layer + 1);
    entry.max_error = entry.mean_error * 2;
    for (uint32_t group = 0; group < shape.groups; ++group) {
      std::string segment(shape.segment_bytes[layer], '\0');
      for (char& c : segment) c = static_cast<char>(random());
      entry.segments.push_back(
          {shape.segment_bytes[layer], codec::Checksum(std::as_bytes(std::span(segment)))});
      segments += segment;
    }
  }
  chunk.container = codec::SerializeChunkHeader(header) + segments;
  return chunk;
}

std::vector<TestChunk> MakeContext(uint32_t context, uint32_t count, uint32_t bytes) {
  std::vector<TestChunk> chunks;
  for (uint32_t i = 0; i < count; ++i) {
    chunks.push_back(
        MakeChunk({.index = i, .context = context, .segment_bytes = {bytes}, .groups = 1}));
  }
  return chunks;
}

namespace {

absl::StatusOr<CommitResult> Send(PutSession& session, const std::string& all, size_t piece) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(all));
  while (!bytes.empty()) {
    const size_t take = std::min(piece, bytes.size());
    if (absl::Status status = session.Append(bytes.first(take)); !status.ok()) return status;
    bytes = bytes.subspan(take);
  }
  return session.Commit();
}

}  // namespace

Digest ProfileId(const std::string& profile) {
  return codec::Sha256(std::as_bytes(std::span(profile)));
}

absl::StatusOr<CommitResult> PutProfile(Store& store, const std::string& profile, size_t piece) {
  auto begun = store.BeginPutProfile(ProfileId(profile), profile.size());
  if (!begun.ok()) return begun.status();
  if (begun->already_stored) return CommitResult::kAlreadyStored;
  return Send(*begun->session, profile, piece);
}

std::string ReadProfile(Store& store, const Digest& id) {
  const auto reader = store.OpenProfile(id);
  if (!reader.ok()) return std::string(reader.status().message());
  std::string bytes((*reader)->profile()->bytes, '\0');
  const absl::Status status = (*reader)->Read(0, std::as_writable_bytes(std::span(bytes)));
  return status.ok() ? bytes : std::string(status.message());
}

absl::StatusOr<BeginPutResult> BeginChunk(Store& store, const TestChunk& chunk) {
  auto begun = store.BeginPut(chunk.announcement());
  if (!begun.ok() || !begun->profile_needed) return begun;
  if (auto put = PutProfile(store, chunk.profile); !put.ok()) return put.status();
  return store.BeginPut(chunk.announcement());
}

absl::StatusOr<CommitResult> PutChunk(Store& store, const TestChunk& chunk, size_t piece) {
  auto begun = BeginChunk(store, chunk);
  if (!begun.ok()) return begun.status();
  if (begun->already_stored) return CommitResult::kAlreadyStored;
  return Send(*begun->session, chunk.container, piece);
}

bool IsStored(Store& store, const TestChunk& chunk) {
  return store.Lookup(chunk.id.namespace_digest, {&chunk.id.key, 1}).front() != nullptr;
}

std::string ReadChunk(Store& store, const TestChunk& chunk) {
  const auto reader = store.Open(chunk.id);
  if (!reader.ok()) return std::string(reader.status().message());
  std::string bytes((*reader)->header()->total_bytes(), '\0');
  const absl::Status status = (*reader)->Read(0, std::as_writable_bytes(std::span(bytes)));
  return status.ok() ? bytes : std::string(status.message());
}

TestFolder::TestFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}

TestFolder::~TestFolder() { std::filesystem::remove_all(path_); }

std::vector<std::filesystem::path> TestFolder::Find(const std::string& extension) const {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    if (entry.path().extension() == extension) found.push_back(entry.path());
  }
  return found;
}

size_t TestFolder::CountFiles(const std::string& folder) const {
  return std::distance(std::filesystem::directory_iterator(path_ + "/" + folder),
                       std::filesystem::directory_iterator());
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void WriteFile(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace sluice::server
