// Has decoded groups written into an engine's blocks.
//
// Thread-safe for different groups or chunks at a time, as PlaneSink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "client/loader.h"
#include "client/pool_registry.h"
#include "codec/decoder.h"
#include "codec/profile.h"

namespace sluice::client {

class BlockSink final : public PlaneSink {
 public:
  // `block_ids` are those of all chunks of the context; the first `skip_blocks` of them are not
  // written. Everything that is referred to must outlive the sink.
  BlockSink(RegisteredPool& pool, const codec::Profile& profile,
            std::span<const uint32_t> block_ids, size_t skip_blocks, size_t blocks_per_chunk);

  absl::Status Write(uint32_t chunk_index, size_t group,
                     const codec::GroupDecoder& decoded) override;

 private:
  // Writes all but the first `skip` blocks of a chunk.
  absl::Status WriteRest(const codec::GroupSpec& group, std::span<const uint32_t> blocks,
                         size_t skip, const codec::GroupDecoder& decoded);

  RegisteredPool& pool_;
  const codec::Profile& profile_;
  const std::span<const uint32_t> block_ids_;
  const size_t skip_blocks_;
  const size_t blocks_per_chunk_;
};

}  // namespace sluice::client
