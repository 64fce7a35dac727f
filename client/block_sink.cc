#include "client/block_sink.h"

#include <vector>

#include "codec/plane_runs.h"
#include "codec/status_macros.h"

namespace sluice::client {

BlockSink::BlockSink(RegisteredPool& pool, const codec::Profile& profile,
                     std::span<const uint32_t> block_ids, size_t skip_blocks,
                     size_t blocks_per_chunk)
    : pool_(pool),
      profile_(profile),
      block_ids_(block_ids),
      skip_blocks_(skip_blocks),
      blocks_per_chunk_(blocks_per_chunk) {}

absl::Status BlockSink::Write(uint32_t chunk_index, size_t group,
                              const codec::GroupDecoder& decoded) {
  if (pool_.closing()) return absl::CancelledError("the pool was unregistered");
  const codec::GroupSpec& spec = profile_.groups()[group];
  const size_t first_block = chunk_index * blocks_per_chunk_;
  const auto blocks = block_ids_.subspan(first_block, blocks_per_chunk_);
  if (skip_blocks_ > first_block) {
    return WriteRest(spec, blocks, skip_blocks_ - first_block, decoded);
  }
  return pool_.blocks().Access(
      spec.first_plane, spec.num_planes, blocks,
      [&](std::span<const codec::PlaneRuns> planes) { return decoded.Write(planes); });
}

// The engine may be reading the blocks that are left alone: the chunk is written beside the pool
// first.
absl::Status BlockSink::WriteRest(const codec::GroupSpec& group, std::span<const uint32_t> blocks,
                                  size_t skip, const codec::GroupDecoder& decoded) {
  const uint32_t block_tokens = pool_.blocks().layout().block_tokens;
  const size_t num_tokens = blocks.size() * block_tokens;
  const codec::TokenInterval rest = {skip * block_tokens, num_tokens};
  std::vector<std::vector<std::byte>> planes(group.num_planes);
  std::vector<std::byte*> begins(group.num_planes);
  std::vector<codec::PlaneRuns> runs;
  for (size_t i = 0; i < planes.size(); ++i) {
    const codec::PlaneSpec& spec = pool_.geometry().planes[group.first_plane + i];
    planes[i].resize(num_tokens * spec.bytes_per_token());
    begins[i] = planes[i].data();
    runs.push_back(codec::DenseRuns(spec, num_tokens, begins[i]));
  }
  RETURN_IF_ERROR(decoded.Write(runs));
  for (size_t i = 0; i < planes.size(); ++i) {
    const codec::PlaneSpec& spec = pool_.geometry().planes[group.first_plane + i];
    std::vector<std::byte> values((rest.end - rest.begin) * spec.bytes_per_token());
    codec::CopyFromRuns(spec, runs[i], rest, values);
    RETURN_IF_ERROR(pool_.blocks().Scatter(group.first_plane + i, blocks.subspan(skip), values));
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
