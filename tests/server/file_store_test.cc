// What only a store on disk has: restarts, left-overs, damaged files, failing disks.
#include "server/file_store.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/server/testing.h"

namespace sluice::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Makes the operation with the given number, and all after it, fail.
class FailingFiles : public Files {
 public:
  int count = 0;
  int fail_at = -1;
  bool failed = false;

  absl::StatusOr<UniqueFd> Create(const std::string& path) override {
    if (Fails()) return Failure("create");
    return Files::Create(path);
  }
  absl::Status Write(int fd, const std::string& path, std::span<const std::byte> bytes) override {
    if (!Fails()) return Files::Write(fd, path, bytes);
    Files::Write(fd, path, bytes.first(bytes.size() / 2)).IgnoreError();
    return Failure("write");
  }
  absl::Status Sync(int fd, const std::string& path) override {
    return Fails() ? Failure("sync") : Files::Sync(fd, path);
  }
  absl::Status SyncFolder(const std::string& path) override {
    return Fails() ? Failure("sync folder") : Files::SyncFolder(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Fails() ? Failure("rename") : Files::Rename(from, to);
  }
  absl::Status MakeFolder(const std::string& path) override {
    return Fails() ? Failure("mkdir") : Files::MakeFolder(path);
  }

 private:
  bool Fails() {
    const bool fails = fail_at >= 0 && count >= fail_at;
    ++count;
    failed |= fails;
    return fails;
  }
  static absl::Status Failure(const char* operation) {
    return absl::ResourceExhaustedError(operation);
  }
};

class FileStoreTest : public testing::Test {
 protected:
  std::unique_ptr<FileStore> Open(uint64_t quota = 1 << 20, Files* files = &Files::System()) {
    auto store = FileStore::Open(Options(quota, files));
    EXPECT_THAT(store.status(), IsOk());
    return *std::move(store);
  }

  FileStoreOptions Options(uint64_t quota = 1 << 20, Files* files = &Files::System()) {
    FileStoreOptions options;
    options.data_dir = data_;
    options.quota_bytes = quota;
    options.files = files;
    options.clock = clock_.clock();
    options.warn = [this](absl::string_view line) { warnings_.push_back(std::string(line)); };
    return options;
  }

  TestFolder folder_;
  const std::string data_ = folder_.path() + "/data";
  FakeClock clock_;
  std::vector<std::string> warnings_;
};

TEST_F(FileStoreTest, RestartKeepsChunksPinsProfilesAndOrder) {
  const std::vector<TestChunk> a = MakeContext(1, 2, 1000);
  const std::vector<TestChunk> b = MakeContext(2, 2, 1000);
  const uint64_t bytes = a[0].container.size();
  {
    auto store = Open();
    for (const TestChunk& chunk : a) ASSERT_THAT(PutChunk(*store, chunk).status(), IsOk());
    clock_.Advance(absl::Seconds(1));
    for (const TestChunk& chunk : b) ASSERT_THAT(PutChunk(*store, chunk).status(), IsOk());
    clock_.Advance(absl::Seconds(1));
    store->Use(a[1].id, clock_.clock()());  // and with it a[0]
    ASSERT_EQ(*store->Pin({b[0].id.namespace_digest, {b[0].id.key}, {}}, true), 1u);
  }
  auto store = Open(4 * bytes);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(store->Usage().bytes, 4 * bytes);
  EXPECT_EQ(ReadProfile(*store, a[0].descriptor.profile_id), a[0].profile);
  for (const TestChunk& chunk : a) EXPECT_EQ(ReadChunk(*store, chunk), chunk.container);
  const std::vector<TestChunk> c = MakeContext(3, 2, 1000);
  ASSERT_THAT(PutChunk(*store, c[0]).status(), IsOk());
  EXPECT_FALSE(IsStored(*store, b[1]));  // the oldest use that is not pinned
  ASSERT_THAT(PutChunk(*store, c[1]).status(), IsOk());
  EXPECT_FALSE(IsStored(*store, a[1]));
  EXPECT_TRUE(IsStored(*store, a[0]));
  EXPECT_TRUE(IsStored(*store, b[0]));
}

TEST_F(FileStoreTest, LookupTeachesTheOrderAfterARestart) {
  const std::vector<TestChunk> context = MakeContext(1, 2, 1000);
  const TestChunk other = MakeContext(2, 1, 1000)[0];
  {
    auto store = Open();
    for (const TestChunk& chunk : context) ASSERT_THAT(PutChunk(*store, chunk).status(), IsOk());
  }
  auto store = Open(2 * context[0].container.size());
  const Digest keys[] = {context[0].id.key, context[1].id.key};
  store->Lookup(context[0].id.namespace_digest, keys);
  clock_.Advance(absl::Seconds(5));
  store->Use(context[1].id, clock_.clock()());
  ASSERT_THAT(PutChunk(*store, other).status(), IsOk());
  EXPECT_TRUE(IsStored(*store, context[0]));
  EXPECT_FALSE(IsStored(*store, context[1]));
}

TEST_F(FileStoreTest, SmallerQuotaAfterRestartEvicts) {
  const std::vector<TestChunk> context = MakeContext(1, 3, 1000);
  {
    auto store = Open();
    for (const TestChunk& chunk : context) ASSERT_THAT(PutChunk(*store, chunk).status(), IsOk());
  }
  auto store = Open(context[0].container.size());
  EXPECT_TRUE(IsStored(*store, context[0]));
  EXPECT_EQ(store->Usage().chunks, 1u);
  EXPECT_EQ(folder_.Find(".chunk").size(), 1u);
}

TEST_F(FileStoreTest, LeftOversAreRemoved) {
  const TestChunk chunk = MakeChunk({});
  { ASSERT_THAT(PutChunk(*Open(), chunk).status(), IsOk()); }
  WriteFile(data_ + "/tmp/7", "half a chunk");
  fs::create_directory(data_ + "/" + std::string(64, 'a'));  // killed while it made a namespace
  auto store = Open();
  EXPECT_EQ(folder_.CountFiles("data/tmp"), 0u);
  EXPECT_FALSE(fs::exists(data_ + "/" + std::string(64, 'a')));
  EXPECT_TRUE(warnings_.empty());
  EXPECT_TRUE(IsStored(*store, chunk));
}

TEST_F(FileStoreTest, DamagedAndMisplacedFilesAreMovedAside) {
  const std::vector<TestChunk> context = MakeContext(1, 4, 1000);
  {
    auto store = Open();
    for (const TestChunk& chunk : context) ASSERT_THAT(PutChunk(*store, chunk).status(), IsOk());
  }
  auto path = [&](const TestChunk& chunk) {
    const std::string key = codec::DigestHex(chunk.id.key);
    return data_ + "/" + codec::DigestHex(chunk.id.namespace_digest) + "/" + key.substr(0, 2) +
           "/" + key + ".chunk";
  };
  fs::resize_file(path(context[0]), 10);                               // no header
  fs::resize_file(path(context[1]), context[1].container.size() - 1);  // a byte short
  WriteFile(path(context[2]), context[3].container);                   // another chunk's bytes
  const fs::path stray = fs::path(path(context[3])).parent_path() / "stray.chunk";
  WriteFile(stray, "?");
  auto store = Open();
  EXPECT_EQ(warnings_.size(), 4u);
  EXPECT_EQ(store->Usage().chunks, 1u);
  EXPECT_TRUE(IsStored(*store, context[3]));
  EXPECT_EQ(folder_.CountFiles("data/quarantine"), 4u);
  for (const TestChunk& chunk : context) ASSERT_THAT(PutChunk(*store, chunk).status(), IsOk());
  for (const TestChunk& chunk : context) EXPECT_EQ(ReadChunk(*store, chunk), chunk.container);
}

// Each of these once kept the server from starting: by waiting for a writer, by an exception, by an
// error.
TEST_F(FileStoreTest, PipesLoopsAndFoldersDoNotKeepItFromStarting) {
  const std::vector<TestChunk> context = MakeContext(1, 2, 1000);
  {
    auto store = Open();
    for (const TestChunk& chunk : context) ASSERT_THAT(PutChunk(*store, chunk).status(), IsOk());
  }
  const fs::path folder = fs::path(data_) / codec::DigestHex(context[0].id.namespace_digest);
  const std::string key = codec::DigestHex(context[1].id.key);
  const fs::path chunk = folder / key.substr(0, 2) / (key + ".chunk");
  fs::remove(chunk);
  ASSERT_EQ(::mkfifo(chunk.c_str(), 0600), 0);
  fs::create_symlink("loop", folder / "loop");
  fs::create_symlink(std::string(64, 'a'), fs::path(data_) / std::string(64, 'a'));
  fs::create_directories(fs::path(data_) / "tmp" / "folder" / "inner");
  auto store = Open();
  EXPECT_TRUE(IsStored(*store, context[0]));
  EXPECT_FALSE(IsStored(*store, context[1]));
}

TEST_F(FileStoreTest, QuarantineIsBounded) {
  const TestChunk chunk = MakeChunk({});
  { ASSERT_THAT(PutChunk(*Open(), chunk).status(), IsOk()); }
  const fs::path shard = folder_.Find(".chunk").at(0).parent_path();
  for (size_t i = 0; i < FileStore::kMaxQuarantineFiles + 5; ++i) {
    WriteFile(shard / ("stray" + absl::StrCat(i)), "?");
  }
  auto store = Open();
  EXPECT_EQ(folder_.CountFiles("data/quarantine"), FileStore::kMaxQuarantineFiles);
  EXPECT_TRUE(IsStored(*store, chunk));
  EXPECT_EQ(std::distance(fs::directory_iterator(shard), fs::directory_iterator()), 1);
}

TEST_F(FileStoreTest, DamagedNamespaceIsMovedAside) {
  const TestChunk chunk = MakeChunk({});
  { ASSERT_THAT(PutChunk(*Open(), chunk).status(), IsOk()); }
  for (const std::string& damaged : {std::string("other"), std::string(100000, 'x')}) {
    WriteFile(data_ + "/" + codec::DigestHex(chunk.id.namespace_digest) + "/namespace", damaged);
    warnings_.clear();
    auto store = Open();
    EXPECT_EQ(warnings_.size(), 1u);
    EXPECT_EQ(store->Usage().chunks, 0u);
    EXPECT_THAT(PutChunk(*store, chunk).status(), IsOk());
  }
}

TEST_F(FileStoreTest, StartForgetsProfilesThatNothingUses) {
  const TestChunk chunk = MakeChunk({});
  {
    auto store = Open();
    ASSERT_THAT(PutChunk(*store, chunk).status(), IsOk());
    ASSERT_THAT(PutProfile(*store, "of nobody").status(), IsOk());
    EXPECT_EQ(folder_.CountFiles("data/profiles"), 2u);
  }
  WriteFile(data_ + "/profiles/stray", "?");
  auto store = Open();
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(folder_.CountFiles("data/profiles"), 1u);
  EXPECT_EQ(ReadProfile(*store, ProfileId(chunk.profile)), chunk.profile);
  ASSERT_THAT(store->Delete({chunk.id.namespace_digest, {}, {}}, false).status(), IsOk());
  EXPECT_EQ(folder_.CountFiles("data/profiles"), 0u);
}

TEST_F(FileStoreTest, LostProfileLeavesTheChunks) {
  const TestChunk chunk = MakeChunk({});
  { ASSERT_THAT(PutChunk(*Open(), chunk).status(), IsOk()); }
  fs::remove_all(data_ + "/profiles");
  auto store = Open();
  EXPECT_TRUE(IsStored(*store, chunk));
  EXPECT_THAT(store->OpenProfile(ProfileId(chunk.profile)).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("profile")));
  EXPECT_TRUE(store->BeginPut(MakeChunk({.index = 1}).announcement())->profile_needed);
  // Putting again what is there brings the profile back.
  EXPECT_EQ(*PutChunk(*store, chunk), CommitResult::kAlreadyStored);
  EXPECT_EQ(ReadProfile(*store, ProfileId(chunk.profile)), chunk.profile);
}

TEST_F(FileStoreTest, ProfileThatVanishedIsAMiss) {
  auto store = Open();
  ASSERT_THAT(PutProfile(*store, "a profile").status(), IsOk());
  fs::remove_all(data_ + "/profiles");
  EXPECT_EQ(store->OpenProfile(ProfileId("a profile")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(store->Usage().profiles, 0u);
}

TEST_F(FileStoreTest, UnfinishedProfileLeavesNothing) {
  {
    auto store = Open();
    auto begun = store->BeginPutProfile(ProfileId("abc"), 3);
    ASSERT_THAT(begun->session->Append(std::as_bytes(std::span("ab", 2))), IsOk());
    EXPECT_EQ(folder_.CountFiles("data/tmp"), 1u);
    begun->session.reset();
    EXPECT_EQ(folder_.CountFiles("data/tmp"), 0u);
  }
  WriteFile(data_ + "/tmp/7", "what a killed server leaves");
  auto store = Open();
  EXPECT_EQ(folder_.CountFiles("data/tmp"), 0u);
  EXPECT_EQ(store->Usage().profiles, 0u);
}

TEST_F(FileStoreTest, QuotaOfProfiles) {
  FileStoreOptions options = Options();
  options.profile_quota_bytes = 250;
  auto store = *FileStore::Open(std::move(options));
  const TestChunk a = MakeChunk({.profile = std::string(100, 'a')});
  ASSERT_THAT(PutChunk(*store, a).status(), IsOk());
  ASSERT_THAT(PutProfile(*store, std::string(100, 'b')).status(), IsOk());
  EXPECT_THAT(PutProfile(*store, std::string(100, 'c')).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("profile_quota")));
  clock_.Advance(2 * kProfilePatience);  // nobody came for b
  EXPECT_THAT(PutProfile(*store, std::string(100, 'c')).status(), IsOk());
  EXPECT_EQ(ReadProfile(*store, ProfileId(a.profile)), a.profile);
  EXPECT_EQ(store->Usage().profile_bytes, 200u);
}

TEST_F(FileStoreTest, TwoServersCannotShareAFolder) {
  auto store = Open();
  EXPECT_THAT(FileStore::Open(Options()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in use")));
  store.reset();
  Open();
}

TEST_F(FileStoreTest, FileThatVanishedIsAMiss) {
  auto store = Open();
  const TestChunk chunk = MakeChunk({});
  ASSERT_THAT(PutChunk(*store, chunk).status(), IsOk());
  fs::remove(folder_.Find(".chunk").at(0));
  EXPECT_EQ(store->Open(chunk.id).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(IsStored(*store, chunk));
  EXPECT_THAT(PutChunk(*store, chunk).status(), IsOk());
}

// Whatever operation fails, the put fails with its reason, nothing stays behind, and the same put
// works once the disk does; after a restart too.
TEST_F(FileStoreTest, EveryFileOperationMayFail) {
  const TestChunk chunk = MakeChunk({});
  for (int n = 0;; ++n) {
    fs::remove_all(data_);
    FailingFiles files;
    auto store = Open(1 << 20, &files);
    files.count = 0;
    files.fail_at = n;
    const auto put = PutChunk(*store, chunk, 400);
    if (!files.failed) {
      EXPECT_GT(n, 10);
      EXPECT_THAT(put.status(), IsOk());
      break;
    }
    EXPECT_EQ(put.status().code(), absl::StatusCode::kResourceExhausted) << n;
    EXPECT_FALSE(IsStored(*store, chunk)) << n;
    EXPECT_EQ(store->Usage().reserved_bytes, 0u) << n;
    EXPECT_EQ(folder_.CountFiles("data/tmp"), 0u) << n;
    EXPECT_TRUE(folder_.Find(".chunk").empty()) << n;
    files.fail_at = -1;
    if (n % 2 == 1) {
      store.reset();
      store = Open();
    }
    EXPECT_EQ(*PutChunk(*store, chunk), CommitResult::kStored) << n;
    EXPECT_EQ(ReadChunk(*store, chunk), chunk.container) << n;
    EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  }
}

TEST_F(FileStoreTest, RealWriteErrorNamesThePath) {
  auto store = Open();
  const TestChunk chunk = MakeChunk({.segment_bytes = {50000}});
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 20000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = PutChunk(*store, chunk).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(data_ + "/tmp/")));
  EXPECT_EQ(folder_.CountFiles("data/tmp"), 0u);
  EXPECT_THAT(PutChunk(*store, chunk).status(), IsOk());
}

}  // namespace
}  // namespace sluice::server
