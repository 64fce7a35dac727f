#include "client/record_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/file_io.h"
#include "client/load_record_file.h"
#include "tests/golden/load_record_cases.h"

namespace sluice::client {
namespace {

namespace fs = std::filesystem;

class RecordFolderTest : public testing::Test {
 protected:
  ~RecordFolderTest() override { fs::remove_all(path_); }

  std::shared_ptr<LoadRecord> Record(int second) const {
    auto record = std::make_shared<LoadRecord>(ExampleLoadRecord());
    record->load_id = absl::StrCat(second);
    record->start = absl::FromUnixSeconds(1'700'000'000 + second);
    return record;
  }

  // Load ids, by file name.
  std::vector<std::string> Kept() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path_)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::vector<std::string> ids;
    for (const fs::path& file : files) {
      const absl::StatusOr<LoadRecord> record = ParseRecord(*ReadFile(file));
      ids.push_back(record.ok() ? record->load_id : file.filename().string());
    }
    return ids;
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "records-", getpid());
};

TEST_F(RecordFolderTest, KeepsTheLast) {
  fs::create_directories(path_);
  std::ofstream(path_ + "/20200101T000000.000000-9.load.77.partial") << "of a daemon that died";
  std::ofstream(path_ + "/notes.txt") << "not a record";
  for (int round = 0; round < 2; ++round) {  // the second daemon goes on where the first ended
    RecordFolder folder({path_, 3, "test"});
    for (int i = 0; i < 4; ++i) folder.Keep(Record(10 * round + i));
  }
  EXPECT_THAT(Kept(), testing::ElementsAre("11", "12", "13", "notes.txt"));
}

TEST_F(RecordFolderTest, CountsWhatIsDropped) {
  std::ofstream(path_) << "a file where the folder should be";
  RecordFolder folder({path_ + "/below", 3, "test"});
  EXPECT_EQ(folder.dropped(), 0);
  folder.Keep(nullptr);
  EXPECT_EQ(folder.dropped(), 1);
  const int many = 3 * RecordFolder::kMaxWaiting;
  for (int i = 0; i < many; ++i) folder.Keep(Record(i));
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (folder.dropped() < static_cast<uint64_t>(many) + 1 && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(folder.dropped(), many + 1);
}

TEST_F(RecordFolderTest, OffUnlessNamed) { EXPECT_FALSE(RecordFolder({}).enabled()); }

}  // namespace
}  // namespace sluice::client
