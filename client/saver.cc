#include "client/saver.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/log_text.h"
#include "codec/bytes.h"
#include "codec/rate_check.h"
#include "codec/status_macros.h"
#include "spdlog/spdlog.h"

namespace sluice::client {
namespace {

// The planes of one chunk, each without gaps.
class ChunkPlanes {
 public:
  ChunkPlanes(const codec::Geometry& geometry, uint32_t num_tokens)
      : buffer_(geometry.bytes_per_token() * num_tokens) {
    size_t offset = 0;
    for (const codec::PlaneSpec& plane : geometry.planes) {
      const size_t bytes = plane.bytes_per_token() * num_tokens;
      planes_.push_back(std::span(buffer_).subspan(offset, bytes));
      offset += bytes;
    }
  }

  absl::Status Gather(BlockPool& pool, std::span<const uint32_t> blocks) {
    for (size_t i = 0; i < planes_.size(); ++i) {
      RETURN_IF_ERROR(pool.Gather(i, blocks, planes_[i]));
    }
    return absl::OkStatus();
  }

  std::vector<std::span<const std::byte>> views() const {
    return std::vector<std::span<const std::byte>>(planes_.begin(), planes_.end());
  }

 private:
  std::vector<std::byte> buffer_;
  std::vector<std::span<std::byte>> planes_;
};

absl::StatusOr<codec::EncodedChunk> Encode(const SaveJob& job, const codec::Profile& profile,
                                           size_t chunk, const ChunkPlanes& planes) {
  codec::ChunkIdentity identity;
  identity.chunk_key = job.chunk_keys[chunk];
  identity.namespace_digest = codec::NamespaceDigest(job.descriptor);
  identity.start_token = static_cast<uint32_t>(chunk * job.descriptor.chunk_tokens);
  return codec::EncodeChunk(profile, identity, planes.views(), job.descriptor.chunk_tokens,
                            codec::EncodeOptions{.lossless = job.lossless});
}

// Index of the last chunk that must be read from the blocks; -1 for none.
int LastMissing(const std::vector<ChunkManifest>& manifests) {
  for (int i = static_cast<int>(manifests.size()) - 1; i >= 0; --i) {
    if (!manifests[i].found) return i;
  }
  return -1;
}

const char* StateName(SaveState state) {
  return state == SaveState::kStored ? "stored" : state == SaveState::kCopied ? "copied" : "failed";
}

}  // namespace

std::optional<SaveProgress> SaveTicket::Next(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto changed = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !changes_.empty(); };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&changed), timeout)) return std::nullopt;
  SaveProgress progress = std::move(changes_.front());
  changes_.pop_front();
  return progress;
}

void SaveTicket::Push(SaveProgress progress) {
  absl::MutexLock lock(&mutex_);
  changes_.push_back(std::move(progress));
}

Saver::Saver(std::shared_ptr<RemoteStore> store, Config config)
    : store_(std::move(store)), config_(config) {
  for (size_t i = 0; i < config_.threads; ++i) threads_.emplace_back([this] { Work(); });
}

Saver::~Saver() {
  Drain(absl::InfinitePast());
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<std::shared_ptr<SaveTicket>> Saver::Enqueue(SaveJob job) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("the daemon is stopping");
  if (queue_.size() + running_ >= config_.max_saves) {
    return absl::ResourceExhaustedError(
        absl::StrCat("limits.saves: ", config_.max_saves, " saves are waiting or running"));
  }
  auto ticket = std::make_shared<SaveTicket>();
  queue_.push_back({std::move(job), ticket});
  return ticket;
}

void Saver::Cancel(const std::shared_ptr<SaveTicket>& ticket) {
  ticket->cancelled_.store(true);
  absl::MutexLock lock(&mutex_);
  const size_t withdrawn =
      std::erase_if(queue_, [&](const Entry& entry) { return entry.ticket == ticket; });
  if (withdrawn > 0) {
    SaveProgress progress;
    progress.message = "cancelled";
    ticket->Push(std::move(progress));
  }
}

bool Saver::Drain(absl::Time deadline) {
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return queue_.empty() && running_ == 0;
  };
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  const bool drained = mutex_.AwaitWithDeadline(absl::Condition(&idle), deadline);
  if (!drained) abandon_.store(true);
  return drained;
}

size_t Saver::size() const {
  absl::MutexLock lock(&mutex_);
  return queue_.size() + running_;
}

void Saver::Work() {
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !queue_.empty() || stopping_;
  };
  while (true) {
    Entry entry;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&ready));
      if (queue_.empty()) return;
      entry = std::move(queue_.front());
      queue_.pop_front();
      ++running_;
    }
    Run(entry);
    entry = {};  // lets go of the pool
    absl::MutexLock lock(&mutex_);
    --running_;
  }
}

void Saver::Run(const Entry& entry) {
  const absl::Time start = absl::Now();
  SaveProgress progress;
  const absl::Status status = SaveMissing(entry, progress);
  progress.state = status.ok() ? SaveState::kStored : SaveState::kFailed;
  progress.message = std::string(status.message());
  spdlog::info(
      "event=save request={} state={} stored_chunks={} existing_chunks={} bytes={} "
      "unusual_rate_chunks={} ms={:.1f} message={}",
      Quoted(entry.job.request_id), StateName(progress.state), progress.stored_chunks,
      progress.existing_chunks, progress.bytes, progress.unusual_rate_chunks,
      absl::ToDoubleMilliseconds(absl::Now() - start), Quoted(progress.message));
  entry.ticket->Push(std::move(progress));
}

absl::Status Saver::CheckWanted(const Entry& entry, bool copied) const {
  if (abandon_.load()) return absl::UnavailableError("the daemon is stopping");
  if (copied) return absl::OkStatus();
  if (entry.ticket->cancelled_.load()) return absl::CancelledError("cancelled by the engine");
  if (entry.job.pool->closing()) return absl::CancelledError("the pool was unregistered");
  return absl::OkStatus();
}

void Saver::CheckRate(const codec::Profile& profile, const codec::EncodedChunk& chunk,
                      SaveProgress& progress) {
  const auto header = codec::ParseChunkHeader(codec::AsBytes(chunk.container));
  if (!header.ok()) return;  // the server says so
  const std::optional<codec::ChunkRate> rate = codec::RateOf(profile, *header);
  if (!rate || !rate->unusual) return;
  ++progress.unusual_rate_chunks;
  ++unusual_rate_chunks_;
}

absl::Status Saver::SaveMissing(const Entry& entry, SaveProgress& progress) {
  const SaveJob& job = entry.job;
  RETURN_IF_ERROR(CheckWanted(entry, /*copied=*/false));
  absl::StatusOr<std::vector<ChunkManifest>> manifests = store_->Lookup(
      codec::NamespaceDigest(job.descriptor), job.chunk_keys, absl::Now() + config_.put_timeout,
      [&] { return !CheckWanted(entry, /*copied=*/false).ok(); });
  if (absl::IsNotFound(manifests.status())) {  // the namespace is new
    manifests = std::vector<ChunkManifest>(job.chunk_keys.size());
  }
  RETURN_IF_ERROR(manifests.status());
  const int last_missing = LastMissing(*manifests);
  if (last_missing < 0) {
    progress.existing_chunks = static_cast<uint32_t>(manifests->size());
    progress.state = SaveState::kCopied;
    entry.ticket->Push(progress);
    return absl::OkStatus();
  }

  ASSIGN_OR_RETURN(const ProfilePtr profile,
                   job.pool->GetProfile(absl::Now() + config_.profile_timeout, [&] {
                     return !CheckWanted(entry, /*copied=*/false).ok();
                   }));
  const size_t blocks_per_chunk = job.block_ids.size() / job.chunk_keys.size();
  ChunkPlanes planes(job.pool->geometry(), job.descriptor.chunk_tokens);
  bool copied = false;
  for (size_t i = 0; i < manifests->size(); ++i) {
    if ((*manifests)[i].found) {
      ++progress.existing_chunks;
      continue;
    }
    RETURN_IF_ERROR(CheckWanted(entry, copied));
    const auto blocks = std::span(job.block_ids).subspan(i * blocks_per_chunk, blocks_per_chunk);
    RETURN_IF_ERROR(planes.Gather(job.pool->blocks(), blocks));
    if (static_cast<int>(i) == last_missing) {
      RETURN_IF_ERROR(CheckWanted(entry, copied));
      copied = true;
      progress.state = SaveState::kCopied;
      entry.ticket->Push(progress);
    }
    ASSIGN_OR_RETURN(const codec::EncodedChunk encoded, Encode(job, *profile, i, planes));
    CheckRate(*profile, encoded, progress);
    // The engine may have reused the blocks as soon as it had cancelled.
    RETURN_IF_ERROR(CheckWanted(entry, copied));
    const std::optional<codec::Digest> parent =
        i == 0 ? std::nullopt : std::optional(job.chunk_keys[i - 1]);
    ASSIGN_OR_RETURN(const PutResult put,
                     PutWithProfile(
                         *store_, {job.descriptor, job.chunk_keys[i], parent, encoded.container},
                         [&]() -> std::string_view { return profile->bytes(); },
                         {.chunk = config_.put_timeout, .profile = config_.profile_timeout},
                         [&] { return !CheckWanted(entry, copied).ok(); }));
    ++(put.already_stored ? progress.existing_chunks : progress.stored_chunks);
    progress.bytes += put.sent_bytes;
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
