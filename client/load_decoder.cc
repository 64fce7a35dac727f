#include "client/load_decoder.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/link_monitor.h"
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
  Core(const codec::Profile& profile, PlaneSink& sink, LoadEvents& events, size_t num_chunks)
      : profile_(profile), sink_(sink), events_(events), revoked_(num_chunks, false) {}

  void Run(const DecodeTask& task) ABSL_LOCKS_EXCLUDED(mutex_) {
    Buffer buffer;
    {
      absl::MutexLock lock(&mutex_);
      if (stopped_ || revoked_[task.chunk]) return;
      ++running_;
      if (!spare_.empty()) {
        buffer = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    GroupDone done;
    done.chunk = task.chunk;
    done.attempt = task.attempt;
    done.group = task.group;
    done.step = task.step;
    std::vector<std::span<std::byte>> planes = Planes(task, buffer);
    done.status = Decode(task, planes);
    if (!done.status.ok()) {
      done.result = GroupDone::Result::kDamaged;
      done.bad_layer = FirstBadLayer(task);
    }

    absl::MutexLock lock(&mutex_);
    if (!stopped_ && !revoked_[task.chunk]) {
      if (done.status.ok()) {
        const std::vector<std::span<const std::byte>> views(planes.begin(), planes.end());
        done.status = sink_.Write(task.chunk_index, task.group, views);
        if (!done.status.ok()) done.result = GroupDone::Result::kSinkFailed;
      }
      done.at_us = NowUs();
      events_.Push(std::move(done));
    }
    spare_.push_back(std::move(buffer));
    --running_;
  }

  void Revoke(uint32_t chunk) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    revoked_[chunk] = true;
  }

  void Stop() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    mutex_.Await(absl::Condition(this, &Core::Idle));
  }

 private:
  using Buffer = std::vector<std::byte>;

  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_ == 0; }

  std::vector<std::span<std::byte>> Planes(const DecodeTask& task, Buffer& buffer) const {
    const uint32_t num_tokens = task.input.header->num_tokens;
    const codec::GroupSpec& group = profile_.groups()[task.group];
    const uint64_t bytes = GroupBytes(profile_, task.group, num_tokens);
    if (buffer.size() < bytes) buffer.resize(bytes);
    std::vector<std::span<std::byte>> planes;
    size_t offset = 0;
    for (uint32_t i = 0; i < group.num_planes; ++i) {
      const codec::PlaneSpec& plane = profile_.geometry().planes[group.first_plane + i];
      const size_t plane_bytes = plane.bytes_per_token() * num_tokens;
      planes.push_back(std::span(buffer).subspan(offset, plane_bytes));
      offset += plane_bytes;
    }
    return planes;
  }

  absl::Status Decode(const DecodeTask& task, std::span<const std::span<std::byte>> planes) const {
    std::vector<std::span<const std::byte>> segments;
    for (const auto& segment : task.input.segments) segments.push_back(AsBytes(*segment));
    return codec::DecodeGroup(profile_, *task.input.header, task.group, task.input.level, segments,
                              planes);
  }

  const codec::Profile& profile_;
  PlaneSink& sink_;
  LoadEvents& events_;
  absl::Mutex mutex_;
  std::vector<bool> revoked_ ABSL_GUARDED_BY(mutex_);
  std::vector<Buffer> spare_ ABSL_GUARDED_BY(mutex_);  // at most one per thread of the pool
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

LoadDecoder::LoadDecoder(DecodePool& pool, const codec::Profile& profile, PlaneSink& sink,
                         LoadEvents& events, size_t num_chunks)
    : pool_(pool), core_(std::make_shared<Core>(profile, sink, events, num_chunks)) {}

LoadDecoder::~LoadDecoder() { Stop(); }

void LoadDecoder::Submit(DecodeTask task) {
  const bool urgent = task.step == 0;
  pool_.Post(urgent, [core = core_, task = std::move(task)] { core->Run(task); });
}

void LoadDecoder::Revoke(uint32_t chunk) { core_->Revoke(chunk); }

void LoadDecoder::Stop() { core_->Stop(); }

}  // namespace sluice::client
