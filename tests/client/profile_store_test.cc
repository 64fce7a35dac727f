#include "client/profile_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "client/profile_geometry.h"
#include "tests/client/fake_store.h"
#include "tests/client/test_profiles.h"

namespace sluice::client {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

class ProfileStoreTest : public ::testing::Test {
 protected:
  ProfileStoreTest() {
    std::string pattern = (fs::temp_directory_path() / "sluice-profiles-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    config_.folder.path = root_ + "/cache/profiles";
  }
  ~ProfileStoreTest() override {
    store_.reset();
    fs::remove_all(root_);
  }

  void StartServer(FakeStore::Faults faults = {}) {
    fake_ = std::make_unique<FakeStore>(std::move(faults));
    for (const std::string& profile : profiles_) fake_->AddProfile(profile);
    Restart();
  }
  // A new process, so to say: nothing is in memory.
  void Restart() {
    store_.reset();
    store_ = std::make_unique<ProfileStore>(
        fake_ == nullptr ? nullptr : RemoteStore::Create(fake_->address()), config_);
  }

  std::string FileOf(const std::string& profile) const {
    return config_.folder.path + "/" + codec::DigestHex(IdOf(profile));
  }
  size_t CountFiles() const {
    return std::distance(fs::directory_iterator(config_.folder.path), fs::directory_iterator());
  }

  ProfileStore::Config config_;
  std::string root_;
  const codec::Geometry geometry_ = SmallGeometry(2, 2, 16);
  const std::string profile_ = ProfileWithSinks(geometry_, 5);
  const std::vector<std::string> profiles_ = {profile_, ProfileWithSinks(geometry_, 6),
                                              ProfileWithSinks(geometry_, 7), "not a profile"};
  std::unique_ptr<FakeStore> fake_;
  std::unique_ptr<ProfileStore> store_;
};

TEST_F(ProfileStoreTest, ServerThenMemoryThenFolder) {
  StartServer();
  const auto first = store_->Get(IdOf(profile_), Soon());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->sink_tokens(), 5u);
  EXPECT_EQ(*store_->Get(IdOf(profile_), Soon()), *first);  // shared, not copied
  EXPECT_EQ(fake_->num_get_profiles(), 1);
  struct stat info = {};
  ASSERT_EQ(stat(config_.folder.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  fake_->Kill();
  Restart();
  const auto again = store_->Get(IdOf(profile_), Soon());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->bytes(), profile_);
}

TEST_F(ProfileStoreTest, ManyWhoAskCauseOneFetch) {
  StartServer({.hold = true});
  std::vector<std::thread> threads;
  std::vector<ProfilePtr> got(16);
  for (ProfilePtr& place : got) {
    threads.emplace_back([&] {
      auto profile = store_->Get(IdOf(profile_), Soon());
      if (profile.ok()) place = *profile;
    });
  }
  while (fake_->num_get_profiles() == 0) {
  }
  fake_->Release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_->num_get_profiles(), 1);
  for (const ProfilePtr& profile : got) {
    ASSERT_NE(profile, nullptr);
    EXPECT_EQ(profile, got[0]);
  }
}

TEST_F(ProfileStoreTest, DeadlineReachesTheWaitAndTheFetchGoesOn) {
  StartServer({.hold = true});
  EXPECT_EQ(store_->Get(IdOf(profile_), absl::Now() + absl::Milliseconds(30)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store_->Get(IdOf(profile_), absl::InfinitePast()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store_->Get(IdOf(profile_), Soon(), [] { return true; }).status().code(),
            absl::StatusCode::kCancelled);
  fake_->Release();
  EXPECT_TRUE(store_->Get(IdOf(profile_), Soon()).ok());
  EXPECT_EQ(fake_->num_get_profiles(), 1);
}

TEST_F(ProfileStoreTest, EndsWhileTheServerHangs) {
  StartServer({.hold = true});
  EXPECT_FALSE(store_->Get(IdOf(profile_), absl::Now() + absl::Milliseconds(10)).ok());
  const absl::Time start = absl::Now();
  store_.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

TEST_F(ProfileStoreTest, DamagedFileIsRemovedAndFetchedAgain) {
  StartServer();
  ASSERT_TRUE(store_->Get(IdOf(profile_), Soon()).ok());
  for (const std::string& bytes : {std::string(), profile_.substr(1), "!" + profile_.substr(1)}) {
    std::ofstream(FileOf(profile_), std::ios::binary) << bytes;
    Restart();
    const auto profile = store_->Get(IdOf(profile_), Soon());
    ASSERT_TRUE(profile.ok()) << profile.status();
    std::ifstream file(FileOf(profile_), std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), profile_);
  }
  EXPECT_EQ(fake_->num_get_profiles(), 4);
  std::ofstream(FileOf(profile_), std::ios::binary) << "damaged";
  fake_->Kill();
  Restart();
  EXPECT_EQ(store_->Get(IdOf(profile_), Soon()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(fs::exists(FileOf(profile_)));
}

TEST_F(ProfileStoreTest, LyingServerIsFoundOut) {
  StartServer({.tamper_profile = [](v1::ProfileFrame& frame) {
    frame.mutable_payload()->back() ^= 1;
    frame.set_checksum(codec::Checksum(std::as_bytes(std::span(frame.payload()))));
  }});
  EXPECT_EQ(store_->Get(IdOf(profile_), Soon()).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(fs::exists(FileOf(profile_)));
}

TEST_F(ProfileStoreTest, UnusableProfileIsNotFetchedAgain) {
  StartServer();
  const codec::Digest id = IdOf("not a profile");
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = store_->Get(id, Soon()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be used"));
  }
  EXPECT_EQ(fake_->num_get_profiles(), 1);
}

TEST_F(ProfileStoreTest, UnknownProfileIsAskedForEachTime) {
  StartServer();
  const std::string late = ProfileWithSinks(geometry_, 9);
  EXPECT_EQ(store_->Get(IdOf(late), Soon()).status().code(), absl::StatusCode::kNotFound);
  fake_->AddProfile(late);
  EXPECT_TRUE(store_->Get(IdOf(late), Soon()).ok());
}

TEST_F(ProfileStoreTest, WithoutServerOrFolder) {
  Restart();
  const absl::Status missing = store_->Get(IdOf(profile_), Soon()).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(config_.folder.path));
  auto profile = codec::Profile::Parse(std::as_bytes(std::span(profile_)));
  store_->Add(std::make_shared<const codec::Profile>(*std::move(profile)));
  EXPECT_TRUE(store_->Get(IdOf(profile_), Soon()).ok());
  Restart();
  EXPECT_TRUE(store_->Get(IdOf(profile_), Soon()).ok());
  config_.folder.path.clear();
  StartServer();
  EXPECT_TRUE(store_->Get(IdOf(profile_), Soon()).ok());
}

TEST_F(ProfileStoreTest, FolderThatCannotBeWrittenCostsOnlyTheCopy) {
  std::ofstream(root_ + "/cache") << "a file where a folder should be";
  StartServer();
  EXPECT_TRUE(store_->Get(IdOf(profile_), Soon()).ok());
  Restart();
  EXPECT_TRUE(store_->Get(IdOf(profile_), Soon()).ok());
  EXPECT_EQ(fake_->num_get_profiles(), 2);
}

TEST_F(ProfileStoreTest, MemoryHasALimitBeyondWhatIsUsed) {
  config_.memory_bytes = 2 * profile_.size() + 1;
  StartServer();
  const ProfilePtr used = *store_->Get(IdOf(profiles_[0]), Soon());
  for (int i = 1; i < 3; ++i) ASSERT_TRUE(store_->Get(IdOf(profiles_[i]), Soon()).ok());
  EXPECT_EQ(store_->memory_bytes(), 2 * profile_.size());
  fs::remove_all(config_.folder.path);
  EXPECT_EQ(*store_->Get(IdOf(profiles_[0]), Soon()), used);  // still known, because it is used
  ASSERT_TRUE(store_->Get(IdOf(profiles_[2]), Soon()).ok());
  EXPECT_EQ(fake_->num_get_profiles(), 3);
  ASSERT_TRUE(store_->Get(IdOf(profiles_[1]), Soon()).ok());  // used longest ago
  EXPECT_EQ(fake_->num_get_profiles(), 4);
}

TEST_F(ProfileStoreTest, FolderHasALimit) {
  config_.folder.max_bytes = 2 * profile_.size();
  StartServer();
  const auto age = [&](const std::string& profile, int seconds) {
    const timespec times[2] = {{0, UTIME_OMIT}, {1'700'000'000 + seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, FileOf(profile).c_str(), times, 0), 0);
  };
  ASSERT_TRUE(store_->Get(IdOf(profiles_[0]), Soon()).ok());
  ASSERT_TRUE(store_->Get(IdOf(profiles_[1]), Soon()).ok());
  age(profiles_[0], 2);
  age(profiles_[1], 1);
  const std::string dead = FileOf(profiles_[0]) + ".1.1.partial";
  std::ofstream(dead) << "half";
  fs::last_write_time(dead, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(store_->Get(IdOf(profiles_[2]), Soon()).ok());
  EXPECT_TRUE(fs::exists(FileOf(profiles_[0])));
  EXPECT_FALSE(fs::exists(FileOf(profiles_[1])));
  EXPECT_TRUE(fs::exists(FileOf(profiles_[2])));
  EXPECT_EQ(CountFiles(), 2u);
}

TEST_F(ProfileStoreTest, LargeProfile) {
  fake_ = std::make_unique<FakeStore>();
  const std::string large = codec::Profile::Builtin(LargeGeometry(8 << 20))->bytes();
  ASSERT_GT(large.size(), size_t{7} << 20);
  fake_->AddProfile(large);
  Restart();
  const auto profile = store_->Get(IdOf(large), Soon());
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_TRUE((*profile)->bytes() == large);
}

TEST(ProfileGeometryTest, NamesTheFieldThatDiffers) {
  codec::Geometry good = SmallGeometry(2, 2, 16);
  good.planes[0].rotary_table = 0;
  good.rotary_tables.push_back({.inverse_frequencies = {1, 0.5}});
  EXPECT_TRUE(CheckSameGeometry(good, good).ok());
  using Change = std::function<void(codec::Geometry&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"number of planes is 4 in the profile and 3 here",
       [](codec::Geometry& g) { g.planes.pop_back(); }},
      {"planes[1].kind", [](codec::Geometry& g) { g.planes[1].kind = codec::PlaneKind::kLatent; }},
      {"planes[2].model_layer", [](codec::Geometry& g) { g.planes[2].model_layer = 7; }},
      {"planes[3].num_heads is 2 in the profile and 9 here",
       [](codec::Geometry& g) { g.planes[3].num_heads = 9; }},
      {"planes[0].head_dim", [](codec::Geometry& g) { g.planes[0].head_dim = 8; }},
      {"planes[0].element_type",
       [](codec::Geometry& g) { g.planes[0].element_type = codec::ElementType::kFp16; }},
      {"planes[0].rotary_table", [](codec::Geometry& g) { g.planes[0].rotary_table = -1; }},
      {"number of rotary_tables", [](codec::Geometry& g) { g.rotary_tables.push_back({}); }},
      {"rotary_tables[0].layout",
       [](codec::Geometry& g) { g.rotary_tables[0].layout = codec::RotaryLayout::kInterleaved; }},
      {"rotary_tables[0].first_dim", [](codec::Geometry& g) { g.rotary_tables[0].first_dim = 1; }},
      {"number of rotary_tables[0]",
       [](codec::Geometry& g) { g.rotary_tables[0].inverse_frequencies.pop_back(); }},
      {"rotary_tables[0].inverse_frequencies[1]",
       [](codec::Geometry& g) { g.rotary_tables[0].inverse_frequencies[1] = 2; }},
  };
  for (const auto& [field, change] : cases) {
    codec::Geometry other = good;
    change(other);
    const absl::Status status = CheckSameGeometry(good, other);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  }
}

}  // namespace
}  // namespace sluice::client
