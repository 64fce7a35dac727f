// Chunks, clocks and folders for the server's tests. Needs no encoder: segments are random bytes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "codec/container.h"
#include "server/indexed_store.h"
#include "server/store.h"

namespace sluice::server {

// Printed by every test program run; SLUICE_TEST_SEED repeats a run.
uint64_t TestSeed();

// One chunk as a writer has it.
struct TestChunk {
  codec::NamespaceDescriptor descriptor;
  std::string profile;
  ChunkId id;
  std::optional<Digest> parent;
  std::string container;

  Announcement announcement() const;
  codec::ChunkHeader header() const;
};

struct ChunkShape {
  std::string model = "test-model";
  uint32_t index = 0;  // in the context
  uint32_t context = 0;
  std::vector<uint32_t> segment_bytes = {100, 200, 300};  // of each layer, per group
  uint32_t groups = 2;
  bool lossless = false;     // the last layer
  uint32_t variant = 0;      // other bytes under the same key
  std::string profile = "";  // empty: one of the model
};

TestChunk MakeChunk(const ChunkShape& shape);
// Chunks 0 .. count - 1 of a context, each with one group and one layer of `bytes`.
std::vector<TestChunk> MakeContext(uint32_t context, uint32_t count, uint32_t bytes);

// Appends in pieces of `piece` bytes and commits.
absl::StatusOr<CommitResult> PutProfile(Store& store, const std::string& profile,
                                        size_t piece = 1000);
Digest ProfileId(const std::string& profile);
std::string ReadProfile(Store& store, const Digest& id);
// Announces a chunk; puts its profile first if the store needs it.
absl::StatusOr<BeginPutResult> BeginChunk(Store& store, const TestChunk& chunk);
// As BeginChunk, appends in pieces of `piece` bytes and commits.
absl::StatusOr<CommitResult> PutChunk(Store& store, const TestChunk& chunk, size_t piece = 1000);
bool IsStored(Store& store, const TestChunk& chunk);
std::string ReadChunk(Store& store, const TestChunk& chunk);

// Stands still until it is told to move.
class FakeClock {
 public:
  Clock clock() {
    return [this] {
      absl::MutexLock lock(&mu_);
      return now_;
    };
  }
  void Advance(absl::Duration duration) {
    absl::MutexLock lock(&mu_);
    now_ += duration;
  }

 private:
  absl::Mutex mu_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

// A folder that disappears with the object.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  const std::string& path() const { return path_; }
  std::vector<std::filesystem::path> Find(const std::string& extension) const;
  size_t CountFiles(const std::string& folder) const;

 private:
  std::string path_;
};

std::string ReadFile(const std::filesystem::path& path);
void WriteFile(const std::filesystem::path& path, const std::string& bytes);

MATCHER_P2(StatusIs, code, matcher, "") {
  const absl::Status& status = arg;
  *result_listener << status;
  return status.code() == code && testing::Value(std::string(status.message()), matcher);
}
MATCHER(IsOk, "") {
  *result_listener << arg;
  return arg.ok();
}

}  // namespace sluice::server
