#include "client/record_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/file_io.h"
#include "client/load_record_file.h"
#include "client/log_text.h"
#include "codec/bytes.h"
#include "codec/status_macros.h"
#include "spdlog/spdlog.h"

namespace sluice::client {
namespace {

namespace fs = std::filesystem;

// Names sort as the loads began.
constexpr char kTimeFormat[] = "%Y%m%dT%H%M%E6S";
constexpr size_t kDateDigits = 8;

// Of a record, or of one that was being written when the daemon died.
bool IsRecordName(const std::string& name) {
  return name.size() > kDateDigits && name[kDateDigits] == 'T' &&
         std::all_of(name.begin(), name.begin() + kDateDigits, absl::ascii_isdigit) &&
         name.find(".load") != std::string::npos;
}

}  // namespace

RecordFolder::RecordFolder(Config config) : config_(std::move(config)) {
  if (enabled()) thread_ = std::thread(&RecordFolder::Run, this);
}

RecordFolder::~RecordFolder() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void RecordFolder::Keep(std::shared_ptr<LoadRecord> record) {
  absl::MutexLock lock(&mutex_);
  if (record == nullptr || waiting_.size() >= kMaxWaiting) {
    ++dropped_;
    return;
  }
  waiting_.push_back(std::move(record));
}

uint64_t RecordFolder::dropped() const {
  absl::MutexLock lock(&mutex_);
  return dropped_;
}

void RecordFolder::Run() {
  bool failing = false;  // one line of log until it works again
  while (true) {
    std::shared_ptr<LoadRecord> record;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &RecordFolder::HasWork));
      if (waiting_.empty()) return;
      record = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const absl::Status status = Write(*record);
    if (!status.ok() && !failing) {
      spdlog::warn("event=record_failed error={}", Quoted(std::string(status.message())));
    }
    failing = !status.ok();
    if (failing) {
      absl::MutexLock lock(&mutex_);
      ++dropped_;
    }
  }
}

absl::Status RecordFolder::Write(LoadRecord& record) {
  std::error_code error;
  fs::create_directories(config_.path, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make ", config_.path, ": ", error.message()));
  }
  record.program = config_.program;
  const std::string bytes = SerializeRecord(record);
  const std::span<const std::byte> parts[] = {codec::AsBytes(bytes)};
  const std::string time = absl::FormatTime(kTimeFormat, record.start, absl::UTCTimeZone());
  RETURN_IF_ERROR(
      WriteFile(absl::StrCat(config_.path, "/", time, "-", next_file_++, ".load"), parts));
  RemoveOldest();
  return absl::OkStatus();
}

void RecordFolder::RemoveOldest() const {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(config_.path, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (IsRecordName(at->path().filename().string())) paths.push_back(at->path());
  }
  if (paths.size() <= config_.max_records) return;
  std::sort(paths.begin(), paths.end());
  paths.resize(paths.size() - config_.max_records);
  for (const fs::path& path : paths) fs::remove(path, error);
}

}  // namespace sluice::client
