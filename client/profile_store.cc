#include "client/profile_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/log_text.h"
#include "codec/decoder.h"
#include "codec/status_macros.h"
#include "spdlog/spdlog.h"

namespace sluice::client {
namespace {

constexpr absl::Duration kCancelPoll = absl::Milliseconds(10);

std::string Name(const codec::Digest& id) { return absl::StrCat("profile ", codec::DigestHex(id)); }

}  // namespace

ProfileStore::ProfileStore(std::shared_ptr<RemoteStore> server, Config config)
    : server_(std::move(server)), config_(std::move(config)), folder_(config_.folder) {
  for (size_t i = 0; i < config_.threads; ++i) threads_.emplace_back([this] { Work(); });
}

ProfileStore::~ProfileStore() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<ProfilePtr> ProfileStore::Get(const codec::Digest& id, absl::Time deadline,
                                             const std::function<bool()>& cancelled) {
  absl::MutexLock lock(&mutex_);
  if (ProfilePtr profile = FindInMemory(id); profile != nullptr) return profile;
  if (const auto useless = useless_.find(id); useless != useless_.end()) return useless->second;
  std::shared_ptr<Wanted>& place = wanted_[id];
  if (place == nullptr) {
    if (wanted_.size() > kMaxWanted) {
      wanted_.erase(id);
      return absl::ResourceExhaustedError(
          absl::StrCat(Name(id), ": ", kMaxWanted, " other profiles are waited for"));
    }
    place = std::make_shared<Wanted>(Wanted{id, std::nullopt});
    queue_.push_back(place);
  }
  const std::shared_ptr<Wanted> wanted = place;
  const auto done = [&wanted] { return wanted->result.has_value(); };
  while (true) {
    const absl::Time step = cancelled ? absl::Now() + kCancelPoll : absl::InfiniteFuture();
    if (mutex_.AwaitWithDeadline(absl::Condition(&done), std::min(deadline, step))) {
      return *wanted->result;
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(Name(id), " is still on its way"));
    }
    if (cancelled && cancelled()) return absl::CancelledError("cancelled");
  }
}

void ProfileStore::Add(ProfilePtr profile) {
  const codec::Digest id = profile->id();
  const absl::Status written =
      folder_.path().empty() ? absl::OkStatus() : folder_.Write(id, profile->bytes());
  if (!written.ok()) {
    spdlog::warn("event=profile_not_kept id={} error={}", codec::DigestHex(id),
                 Quoted(std::string(written.message())));
  }
  absl::MutexLock lock(&mutex_);
  KeepInMemory(std::move(profile));
}

uint64_t ProfileStore::memory_bytes() const {
  absl::MutexLock lock(&mutex_);
  return recent_bytes_;
}

void ProfileStore::Work() {
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !queue_.empty() || stopping_;
  };
  while (true) {
    std::shared_ptr<Wanted> wanted;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      wanted = std::move(queue_.front());
      queue_.pop_front();
    }
    bool useless = false;
    absl::StatusOr<ProfilePtr> result = Obtain(wanted->id, useless);
    absl::MutexLock lock(&mutex_);
    if (result.ok()) {
      KeepInMemory(*result);
    } else if (useless) {
      if (useless_.size() >= kMaxUseless) useless_.clear();
      useless_[wanted->id] = result.status();
    }
    wanted_.erase(wanted->id);
    wanted->result = std::move(result);
  }
}

absl::StatusOr<ProfilePtr> ProfileStore::Obtain(const codec::Digest& id, bool& useless) {
  ASSIGN_OR_RETURN(std::string bytes, ReadBytes(id));
  auto profile = codec::Profile::Parse(std::move(bytes));
  absl::Status usable = profile.status();
  if (usable.ok()) usable = codec::PrepareDecode(*profile);
  if (usable.ok()) return std::make_shared<const codec::Profile>(*std::move(profile));
  useless = !absl::IsResourceExhausted(usable);
  return absl::FailedPreconditionError(
      absl::StrCat(Name(id), " cannot be used: ", usable.message()));
}

absl::StatusOr<std::string> ProfileStore::ReadBytes(const codec::Digest& id) {
  absl::StatusOr<std::string> kept = folder_.Read(id);
  if (kept.ok()) return kept;
  if (!absl::IsNotFound(kept.status())) {
    spdlog::warn("event=profile_not_read id={} error={}", codec::DigestHex(id),
                 Quoted(std::string(kept.status().message())));
  }
  if (server_ == nullptr) {
    return absl::NotFoundError(absl::StrCat(Name(id), " is not here",
                                            folder_.path().empty() ? "" : ", in ", folder_.path()));
  }
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(std::string bytes, server_->GetProfile(id, config_.folder.max_file_bytes,
                                                          start + config_.fetch_timeout, [this] {
                                                            absl::MutexLock lock(&mutex_);
                                                            return stopping_;
                                                          }));
  spdlog::info("event=profile_fetched id={} bytes={} ms={:.1f}", codec::DigestHex(id), bytes.size(),
               absl::ToDoubleMilliseconds(absl::Now() - start));
  if (folder_.path().empty()) return bytes;
  if (const absl::Status written = folder_.Write(id, bytes); !written.ok()) {
    spdlog::warn("event=profile_not_kept id={} error={}", codec::DigestHex(id),
                 Quoted(std::string(written.message())));
  }
  return bytes;
}

ProfilePtr ProfileStore::FindInMemory(const codec::Digest& id) {
  const auto known = known_.find(id);
  if (known == known_.end()) return nullptr;
  ProfilePtr profile = known->second.lock();
  if (profile != nullptr) KeepInMemory(profile);  // and now it is the most recently used
  return profile;
}

void ProfileStore::KeepInMemory(ProfilePtr profile) {
  absl::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  recent_bytes_ -= profile->bytes().size() *
                   std::erase_if(recent_, [&](const auto& p) { return p->id() == profile->id(); });
  known_[profile->id()] = profile;
  recent_bytes_ += profile->bytes().size();
  recent_.push_front(std::move(profile));
  while (recent_bytes_ > config_.memory_bytes) {
    recent_bytes_ -= recent_.back()->bytes().size();
    recent_.pop_back();
  }
}

}  // namespace sluice::client
