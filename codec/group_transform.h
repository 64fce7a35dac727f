// The transforms of a calibrated profile's groups, packed for this machine when first needed.
//
// Thread-safe. FORMAT.md, section "Calibrated profiles".
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "codec/matrix.h"
#include "codec/profile.h"

namespace sluice::codec {

// What only the encoder needs of a group.
struct GroupAnalysis {
  PackedMatrix matrix;  // normalised channels to coefficients
  // By how much a channel can be off, in finest steps, if no coefficient is off by more than 1.
  std::vector<float> gains;
};

// One per profile; copies of a profile share it.
class TransformCache {
 public:
  explicit TransformCache(size_t num_groups) : groups_(num_groups) {}

  // Coefficients to normalised channels. Lives as long as the cache. The first call for a group
  // packs it, others wait for that. REQUIRES: `profile` is calibrated and the cache is its own.
  absl::StatusOr<const PackedMatrix*> Synthesis(const Profile& profile, size_t group);
  absl::StatusOr<const GroupAnalysis*> Analysis(const Profile& profile, size_t group);

 private:
  struct Entry {
    absl::Mutex mutex;
    std::unique_ptr<const PackedMatrix> synthesis ABSL_GUARDED_BY(mutex);
    std::unique_ptr<const GroupAnalysis> analysis ABSL_GUARDED_BY(mutex);
  };

  std::vector<Entry> groups_;
};

}  // namespace sluice::codec
