#include "client/transfer_share.h"

#include <utility>

namespace sluice::client {

TransferShare::Role TransferShare::Join(const Key& key, uint64_t member, Tell tell) {
  absl::MutexLock lock(&mutex_);
  const auto [found, first] = transfers_.try_emplace(key);
  if (first) return Role::kCarry;
  Transfer& transfer = found->second;
  if (transfer.pieces != nullptr) {
    tell(transfer.pieces);
    return Role::kThere;
  }
  transfer.followers.emplace_back(member, std::move(tell));
  return Role::kFollow;
}

void TransferShare::Leave(const Key& key, uint64_t member) {
  absl::MutexLock lock(&mutex_);
  const auto found = transfers_.find(key);
  if (found == transfers_.end()) return;
  std::erase_if(found->second.followers,
                [member](const auto& follower) { return follower.first == member; });
}

void TransferShare::Complete(const Key& key, Pieces pieces) {
  absl::MutexLock lock(&mutex_);
  const auto found = transfers_.find(key);
  if (found == transfers_.end() || found->second.pieces != nullptr) return;
  Transfer& transfer = found->second;
  TellAll(transfer, pieces);
  for (const Piece& piece : *pieces) transfer.bytes += piece.payload.size();
  transfer.pieces = std::move(pieces);
  transfer.kept = kept_.insert(kept_.end(), key);
  kept_bytes_ += transfer.bytes;
  while (kept_bytes_ > kept_limit_) {
    const auto oldest = transfers_.find(kept_.front());
    kept_bytes_ -= oldest->second.bytes;
    transfers_.erase(oldest);
    kept_.pop_front();
  }
}

void TransferShare::Abandon(const Key& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = transfers_.find(key);
  if (found == transfers_.end() || found->second.pieces != nullptr) return;
  // The entry goes first: a follower that joins again carries.
  Transfer transfer = std::move(found->second);
  transfers_.erase(found);
  TellAll(transfer, nullptr);
}

void TransferShare::TellAll(Transfer& transfer, const Pieces& pieces) {
  for (auto& [member, tell] : std::exchange(transfer.followers, {})) tell(pieces);
}

}  // namespace sluice::client
