// Puts the bytes of one chunk together as they arrive, and refuses what was not asked for.
//
// One thread at a time. Bytes are hostile: every frame must continue its ask exactly, and the
// header must be the one of the chunk that was asked for and agree with the manifest. Segments are
// only collected here; whoever decodes them checks them against the header. Buffers grow with the
// bytes that arrive, up to the lengths in the manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "client/load_plan.h"
#include "client/remote_store.h"
#include "codec/container.h"
#include "codec/profile.h"

namespace sluice::client {

// What the header of a chunk must say.
struct ChunkExpectation {
  codec::Digest chunk_key = {};
  codec::Digest namespace_digest = {};
  uint32_t start_token = 0;
  uint32_t num_tokens = 0;
};

// All that a decode of one group needs. Shares the bytes, so it outlives the assembly.
struct GroupInput {
  codec::Level level = 0;
  std::shared_ptr<const codec::ChunkHeader> header;
  std::vector<std::shared_ptr<const std::string>> segments;  // in layer order
};

class ChunkAssembly {
 public:
  // `profile` must outlive it. REQUIRES: `manifest` has as many groups as the profile; `steps` are
  // those of PlanChunk.
  ChunkAssembly(const codec::Profile& profile, ChunkExpectation expected, ChunkManifest manifest,
                std::vector<ChunkStep> steps);

  // The answer to `ask_id` will carry steps [first_step, last_step].
  void Begin(uint32_t ask_id, uint32_t first_step, uint32_t last_step);
  // Takes the next bytes of an ask. `offset` is in the container. Returns the groups of which a
  // segment became complete (all of them when the header did). Errors: DataLoss for bytes that were
  // not asked for or a header that is damaged or another chunk's; Unimplemented and
  // FailedPrecondition for a header that this profile or program cannot decode.
  absl::StatusOr<std::vector<size_t>> Add(uint32_t ask_id, uint64_t offset,
                                          const std::string& payload);
  // The ask is over. DataLoss if bytes are missing.
  absl::Status End(uint32_t ask_id);

  // Forgets the bytes of `first_step` and later steps and all asks for them.
  void Drop(uint32_t first_step);

  // Highest step that `group` can be decoded at with what has arrived, -1 for none.
  int ReadyStep(size_t group) const;
  // REQUIRES: 0 <= step <= ReadyStep(group).
  GroupInput Input(size_t group, int step) const;

 private:
  struct Segment {
    std::shared_ptr<std::string> bytes;  // null before the first byte and after Drop
    bool complete = false;
  };
  // Where an ask's next byte goes.
  struct Cursor {
    uint32_t first_step = 0;
    bool in_header = false;
    uint32_t layer = 0;
    uint32_t end_layer = 0;
    size_t group = 0;
    uint64_t offset = 0;  // of the next byte in the container

    bool done() const { return !in_header && layer == end_layer; }
  };

  uint64_t LayerOffset(uint32_t layer) const;
  absl::Status TakeHeader(Cursor& cursor, const std::string& payload, size_t& taken);
  void TakeSegments(Cursor& cursor, const std::string& payload, size_t& taken,
                    std::vector<size_t>& completed);
  absl::Status CheckHeader(const codec::ChunkHeader& header) const;

  const codec::Profile& profile_;
  const ChunkExpectation expected_;
  const ChunkManifest manifest_;
  const std::vector<ChunkStep> steps_;
  absl::flat_hash_map<uint32_t, Cursor> cursors_;  // by ask
  std::string header_bytes_;
  std::shared_ptr<const codec::ChunkHeader> header_;
  std::vector<std::vector<Segment>> segments_;  // [layer][group]
};

}  // namespace sluice::client
