// Runs one load: lookup, planner, stream, checks, decode, and hands decoded planes to a sink.
//
// Used by the node daemon (the sink writes into the engine's blocks) and by the CLI (into memory).
// A Loader is thread-safe and shared by all loads towards one server: it owns the link's estimator,
// scheduler and circuit breaker. Load() blocks until every chunk is final, which is before the SLO
// (or the limit) is over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "adapt/load_types.h"
#include "client/chunk_outcome.h"
#include "client/load_record.h"
#include "client/remote_store.h"
#include "codec/decoder.h"
#include "codec/profile.h"

namespace sluice::client {

// Receives decoded groups. Threads may write different groups at a time, of one chunk too.
class PlaneSink {
 public:
  virtual ~PlaneSink() = default;
  // Has `decoded` write its planes, groups()[group].first_plane and on, to where they belong. May
  // be called again for the same group with a higher level.
  virtual absl::Status Write(uint32_t chunk_index, size_t group,
                             const codec::GroupDecoder& decoded) = 0;
};

struct LoadOptions {
  codec::Digest namespace_digest = {};
  std::vector<codec::Digest> chunk_keys;
  uint32_t chunk_tokens = 0;
  uint32_t skip_chunks = 0;  // not loaded and without outcome
  absl::Duration slo = absl::ZeroDuration();
  // Chunks without a base may still be loaded until then, when that beats computing; at least slo.
  absl::Duration limit = absl::ZeroDuration();
  // Forecast of the time in which the engine computes each chunk of the context after all before
  // it, us; empty: not known. LoadControl tells its pace.
  std::vector<adapt::TimeUs> compute_us;
  // What the engine always computes after the load: the tokens behind the last full chunk.
  adapt::TimeUs tail_us = 0;
  double weight = 1;  // share of the link in refinement
  adapt::RecomputeCapability capability = adapt::RecomputeCapability::kNone;
  // Only this level is loaded, as soon as possible, when set; else the best that the SLO allows.
  std::optional<codec::Level> exact_level;
  std::optional<codec::Level>
      max_level;  // unset: finest lossy level (lossless if there is no other)
  std::string load_id;
  bool record = false;  // keep a record of the load
};

struct LoadResult {
  std::vector<ChunkOutcome> outcomes;  // one per chunk that was not skipped, in context order
  uint64_t bytes = 0;
  double ms = 0;
  uint32_t num_levels = 0;  // lossy ones of the profile; 0 if there was none
  // If it was wanted and the load has no more than kMaxRecordedChunks.
  std::shared_ptr<LoadRecord> record;
};

// Lets another thread influence a running load.
class LoadControl {
 public:
  virtual ~LoadControl() = default;
  virtual bool cancelled() const = 0;  // polled at least every 10 ms
  virtual uint32_t computed_chunks()
      const = 0;  // chunks that the engine has computed from the front
  // How its engine computes now, beside the forecast.
  virtual adapt::ComputePace compute_pace() const { return {}; }
  // The engine is to compute this chunk of the context now, beside the load. Called by the thread
  // that loads.
  virtual void OnCompute(uint32_t chunk_index) {}
};

class Loader {
 public:
  struct Config {
    // Of the SLO, for the last decode; at most a quarter of it.
    absl::Duration reserve = absl::Milliseconds(20);
    // Per load: frames, segments kept, decode scratch.
    uint64_t memory_limit_bytes = uint64_t{256} << 20;
    // Chunks at or below this loss are not refined: nats of divergence where the profile foretells
    // them, else squares of the mean error.
    double loss_stop = 0;
    size_t decode_threads = 0;  // of all loads together; 0: as the machine has, at most 4
  };

  static std::unique_ptr<Loader> Create(std::shared_ptr<RemoteStore> store, Config config);
  virtual ~Loader() = default;

  // `on_outcomes` is told of every chunk once, as soon as it is final, from the calling thread.
  // Nothing is written to a chunk after its outcome. `sink` is not used after the return.
  // `control` may be null.
  virtual LoadResult Load(std::shared_ptr<const codec::Profile> profile, const LoadOptions& options,
                          PlaneSink& sink, const OnOutcomes& on_outcomes, LoadControl* control) = 0;

  // Chunks from the start that Load would ask for at its start, with these manifests of the chunks
  // that are not skipped. Asks for nothing and changes nothing.
  virtual uint32_t CountPlanned(const codec::Profile& profile, const LoadOptions& options,
                                std::span<const ChunkManifest> manifests,
                                const adapt::ComputePace& pace) const = 0;

  struct LinkStatus {
    bool breaker_open = false;
    double bytes_per_s = 0;
    double forecast_error = 0;  // relative, smoothed over asks
  };
  virtual LinkStatus link_status() const = 0;
};

}  // namespace sluice::client
