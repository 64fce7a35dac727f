// Decodes the groups of one load on the pool and hands them to the load's sink, each group of a
// chunk once at a time.
//
// Thread-safe. Nothing is written to a chunk once it was revoked, and nothing at all after Stop();
// nor when it might not be through by the end of the load. What is being decoded then goes on in
// the pool, for nothing, and is not waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/chunk_assembly.h"
#include "client/decode_pool.h"
#include "client/load_events.h"
#include "client/loader.h"

namespace sluice::client {

struct DecodeTask {
  uint32_t chunk = 0;        // of the load
  uint32_t chunk_index = 0;  // of the context
  uint32_t attempt = 0;      // comes back in GroupDone
  size_t group = 0;
  int step = 0;
  GroupInput input;
};

class LoadDecoder {
 public:
  // The load ends at `end_us`. Sink and events must outlive the decoder, the pool all its tasks.
  LoadDecoder(DecodePool& pool, std::shared_ptr<const codec::Profile> profile, PlaneSink& sink,
              LoadEvents& events, size_t num_chunks, adapt::TimeUs end_us);
  ~LoadDecoder();  // stops

  // A GroupDone follows unless the chunk is revoked or the load over first. REQUIRES: no other task
  // of the chunk's group is on its way.
  void Submit(DecodeTask task);
  // Puts the task in the place of that of the same group if that has not begun; false if it has.
  bool Replace(DecodeTask task);
  // On return no write to the chunk is running or will be.
  void Revoke(uint32_t chunk);
  // Drops what waits, and waits for the writes that run: at most one group per thread of the pool.
  void Stop();

 private:
  class Core;

  DecodePool& pool_;
  std::shared_ptr<Core> core_;  // shared with the tasks in the pool
};

}  // namespace sluice::client
