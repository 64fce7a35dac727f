#include "server/profile_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {

absl::Status ProfileTable::Reserve(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  const uint64_t taken = used_bytes_ + reserved_bytes_;
  if (taken > quota_bytes_ || bytes > quota_bytes_ - taken) {
    return absl::ResourceExhaustedError(
        absl::StrCat("profile_quota of ", quota_bytes_, " bytes is full: ", bytes,
                     " bytes wanted, ", used_bytes_, " used, ", reserved_bytes_,
                     " reserved; remove namespaces that are not needed"));
  }
  reserved_bytes_ += bytes;
  return absl::OkStatus();
}

void ProfileTable::Release(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  reserved_bytes_ -= bytes;
}

bool ProfileTable::Insert(ProfilePtr profile, uint64_t reserved_bytes, absl::Time kept_until) {
  absl::MutexLock lock(&mu_);
  const uint64_t bytes = profile->bytes;
  auto [at, inserted] = profiles_.try_emplace(profile->id);
  if (!inserted) return false;
  at->second = {std::move(profile), kept_until};
  used_bytes_ += bytes;
  reserved_bytes_ -= reserved_bytes;
  return true;
}

ProfilePtr ProfileTable::Find(const Digest& id) const {
  absl::MutexLock lock(&mu_);
  const auto at = profiles_.find(id);
  return at == profiles_.end() ? nullptr : at->second.profile;
}

ProfilePtr ProfileTable::FindAndKeep(const Digest& id, absl::Time kept_until) {
  absl::MutexLock lock(&mu_);
  const auto at = profiles_.find(id);
  if (at == profiles_.end()) return nullptr;
  at->second.kept_until = std::max(at->second.kept_until, kept_until);
  return at->second.profile;
}

ProfilePtr ProfileTable::FindToUse(const Digest& id) {
  absl::MutexLock lock(&mu_);
  const auto at = profiles_.find(id);
  if (at == profiles_.end()) return nullptr;
  at->second.kept_until = absl::InfinitePast();
  return at->second.profile;
}

bool ProfileTable::Remove(const ProfilePtr& profile) {
  absl::MutexLock lock(&mu_);
  const auto at = profiles_.find(profile->id);
  if (at == profiles_.end() || at->second.profile != profile) return false;
  used_bytes_ -= profile->bytes;
  profiles_.erase(at);
  return true;
}

std::vector<Digest> ProfileTable::RemoveUnused(
    absl::Time now, const std::function<absl::flat_hash_set<Digest>()>& used) {
  absl::MutexLock lock(&mu_);
  std::vector<Digest> unused;
  for (const auto& [id, entry] : profiles_) {
    // Nobody can get hold of it while the table is locked.
    if (entry.profile.use_count() == 1 && entry.kept_until <= now) unused.push_back(id);
  }
  if (unused.empty()) return unused;
  const absl::flat_hash_set<Digest> used_ids = used();
  std::erase_if(unused, [&](const Digest& id) { return used_ids.contains(id); });
  for (const Digest& id : unused) {
    const auto at = profiles_.find(id);
    used_bytes_ -= at->second.profile->bytes;
    profiles_.erase(at);
  }
  return unused;
}

void ProfileTable::Describe(std::vector<NamespaceSummary>& namespaces) const {
  absl::MutexLock lock(&mu_);
  for (NamespaceSummary& space : namespaces) {
    const auto at = profiles_.find(space.descriptor.profile_id);
    if (at != profiles_.end()) space.profile_bytes = at->second.profile->bytes;
  }
}

void ProfileTable::Describe(StoreUsage& usage) const {
  absl::MutexLock lock(&mu_);
  usage.profiles = profiles_.size();
  usage.profile_bytes = used_bytes_;
  usage.profile_quota_bytes = quota_bytes_;
}

}  // namespace sluice::server
