#include "client/load_decoder.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "client/load_plan.h"
#include "client/shared_link.h"
#include "codec/decoder.h"

namespace sluice::client {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// The first layer of the task whose segment is not the one that the header promises, or -1.
int FirstBadLayer(const DecodeTask& task) {
  const GroupInput& input = task.input;
  const int first =
      input.level == codec::kLossless ? input.header->LayerOfLevel(codec::kLossless) : 0;
  for (size_t i = 0; i < input.segments.size(); ++i) {
    const size_t layer = static_cast<size_t>(first) + i;
    if (!codec::VerifySegment(*input.header, layer, task.group, AsBytes(*input.segments[i])).ok()) {
      return static_cast<int>(layer);
    }
  }
  return -1;
}

}  // namespace

class LoadDecoder::Core {
 public:
  using Place = std::pair<uint32_t, size_t>;  // chunk, group

  Core(DecodePool& pool, std::shared_ptr<const codec::Profile> profile, PlaneSink& sink,
       LoadEvents& events, size_t num_chunks, adapt::TimeUs end_us)
      : pool_(pool),
        profile_(std::move(profile)),
        sink_(sink),
        events_(events),
        end_us_(end_us),
        revoked_(num_chunks, false),
        writing_(num_chunks, 0) {}

  void Add(DecodeTask task) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    waiting_.insert_or_assign(Place(task.chunk, task.group), std::move(task));
  }

  bool Replace(DecodeTask task) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto found = waiting_.find({task.chunk, task.group});
    if (found == waiting_.end()) return false;
    found->second = std::move(task);
    return true;
  }

  void Run(const Place& place) ABSL_LOCKS_EXCLUDED(mutex_) {
    DecodeTask task;
    std::unique_ptr<codec::GroupDecoder> decoder = Begin(place, task);
    if (decoder == nullptr) return;
    const adapt::TimeUs start_us = NowUs();
    GroupDone done;
    done.chunk = task.chunk;
    done.attempt = task.attempt;
    done.group = task.group;
    done.step = task.step;
    done.status = Read(task, *decoder);
    if (!done.status.ok()) {
      done.result = GroupDone::Result::kDamaged;
      done.bad_layer = FirstBadLayer(task);
    } else if (BeginWrite(task.chunk)) {
      const adapt::TimeUs write_us = NowUs();
      done.status = sink_.Write(task.chunk_index, task.group, *decoder);
      if (!done.status.ok()) done.result = GroupDone::Result::kSinkFailed;
      done.at_us = NowUs();
      EndWrite(task.chunk, done.at_us - write_us);
      pool_.OnDecoded(task.input.level,
                      GroupBytes(*profile_, task.group, task.input.header->num_tokens),
                      done.at_us - start_us);
    } else {
      done.result = GroupDone::Result::kNotWanted;
    }
    End(std::move(decoder), std::move(done));
  }

  void Revoke(uint32_t chunk) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    revoked_[chunk] = true;
    const auto is_still = [&] {
      mutex_.AssertHeld();
      return writing_[chunk] == 0;
    };
    mutex_.Await(absl::Condition(&is_still));
  }

  void Stop() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    waiting_.clear();
    mutex_.Await(absl::Condition(this, &Core::Idle));
  }

 private:
  // Takes the task; null if it is not wanted any more.
  std::unique_ptr<codec::GroupDecoder> Begin(const Place& place, DecodeTask& task)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return nullptr;
    task = std::move(waiting_.extract(place).mapped());
    if (revoked_[task.chunk]) return nullptr;
    if (spare_.empty()) return std::make_unique<codec::GroupDecoder>();
    std::unique_ptr<codec::GroupDecoder> decoder = std::move(spare_.back());
    spare_.pop_back();
    return decoder;
  }

  bool BeginWrite(uint32_t chunk) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (stopped_ || revoked_[chunk] || NowUs() + 2 * usual_write_us_ >= end_us_) return false;
    ++writing_[chunk];
    ++writes_;
    return true;
  }

  void EndWrite(uint32_t chunk, adapt::TimeUs elapsed_us) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    --writing_[chunk];
    --writes_;
    usual_write_us_ += (elapsed_us - usual_write_us_) / (usual_write_us_ == 0 ? 1 : 4);
  }

  void End(std::unique_ptr<codec::GroupDecoder> decoder, GroupDone done)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const bool wanted = done.result != GroupDone::Result::kNotWanted;
    if (wanted && !stopped_ && !revoked_[done.chunk]) events_.Push(std::move(done));
    spare_.push_back(std::move(decoder));
  }

  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return writes_ == 0; }

  absl::Status Read(const DecodeTask& task, codec::GroupDecoder& decoder) const {
    std::vector<std::span<const std::byte>> segments;
    for (const auto& segment : task.input.segments) segments.push_back(AsBytes(*segment));
    return decoder.Read(*profile_, *task.input.header, task.group, task.input.level, segments);
  }

  DecodePool& pool_;
  const std::shared_ptr<const codec::Profile> profile_;
  PlaneSink& sink_;
  LoadEvents& events_;
  const adapt::TimeUs end_us_;
  absl::Mutex mutex_;
  absl::flat_hash_map<Place, DecodeTask> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> revoked_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> writing_ ABSL_GUARDED_BY(mutex_);  // groups, per chunk
  int writes_ ABSL_GUARDED_BY(mutex_) = 0;            // of all chunks
  adapt::TimeUs usual_write_us_ ABSL_GUARDED_BY(mutex_) = 0;
  // At most one per thread of the pool.
  std::vector<std::unique_ptr<codec::GroupDecoder>> spare_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

LoadDecoder::LoadDecoder(DecodePool& pool, std::shared_ptr<const codec::Profile> profile,
                         PlaneSink& sink, LoadEvents& events, size_t num_chunks,
                         adapt::TimeUs end_us)
    : pool_(pool),
      core_(std::make_shared<Core>(pool, std::move(profile), sink, events, num_chunks, end_us)) {}

LoadDecoder::~LoadDecoder() { Stop(); }

void LoadDecoder::Submit(DecodeTask task) {
  const bool urgent = task.step == 0;
  const Core::Place place(task.chunk, task.group);
  core_->Add(std::move(task));
  pool_.Post(urgent, [core = core_, place] { core->Run(place); });
}

bool LoadDecoder::Replace(DecodeTask task) { return core_->Replace(std::move(task)); }

void LoadDecoder::Revoke(uint32_t chunk) { core_->Revoke(chunk); }

void LoadDecoder::Stop() { core_->Stop(); }

}  // namespace sluice::client
