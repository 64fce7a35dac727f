// What the engines of this host need for a prefill, by model; kept in a file, so that a restarted
// daemon knows it at once.
//
// Thread-safe. Blocks on the disk in Report, seldom, and in Save. A file that cannot be read or
// written costs what was learnt and nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "adapt/prefill_cost.h"

namespace sluice::client {

class PrefillCosts {
 public:
  static constexpr size_t kMaxModels = 64;  // those reported longest ago are forgotten
  static constexpr absl::Duration kSaveEvery = absl::Seconds(10);
  static constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

  // `path` empty: nothing is kept. Reads the file if there is one.
  explicit PrefillCosts(std::string path);

  struct Timing {
    uint32_t new_tokens = 0;
    uint32_t context_tokens = 0;
    adapt::TimeUs us = 0;
  };
  // `model` names whatever has costs of its own, such as "name@revision".
  void Report(const std::string& model, const std::vector<Timing>& timings, absl::Time now);

  // Time to compute a context cut into runs of tokens, one after the other, at scale 1.
  struct Forecast {
    std::vector<adapt::TimeUs> chunk_us;  // empty: not known
    adapt::TimeUs tail_us = 0;            // of the tokens behind the last chunk
  };
  Forecast Predict(const std::string& model, uint32_t num_chunks, uint32_t chunk_tokens,
                   uint32_t tail_tokens) const;
  // How the engines compute now, beside that.
  adapt::ComputePace Pace(const std::string& model) const;

  absl::Status Save();

 private:
  struct Model {
    adapt::PrefillCost cost;
    uint64_t used = 0;  // order of reports
  };

  void Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is wrong with the file's text; empty if nothing is.
  std::string Restore(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Text() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Model> models_ ABSL_GUARDED_BY(mutex_);
  uint64_t reports_ ABSL_GUARDED_BY(mutex_) = 0;
  bool unsaved_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time saved_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace sluice::client
