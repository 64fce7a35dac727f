// Any bytes as a request of an engine: the first byte chooses which. What passes the checks must be
// true: blocks in range, layouts inside their pool.
#include <cstdint>
#include <cstdlib>

#include "client/node_validate.h"

namespace sluice::client {
namespace {

struct Pool {
  BlockLayout layout;
  codec::Digest profile_id;
};

// One plane, eight blocks of sixteen tokens.
const Pool& SmallPool() {
  static const Pool* pool = [] {
    BlockLayout layout;
    codec::PlaneSpec plane;
    plane.num_heads = 1;
    plane.head_dim = 8;
    layout.geometry.planes.push_back(plane);
    layout.num_blocks = 8;
    layout.block_tokens = 16;
    layout.pool_bytes = 8 * 16 * 16;
    layout.planes.push_back({.offset_bytes = 0,
                             .block_stride_bytes = 16 * 16,
                             .token_stride_bytes = 16,
                             .head_stride_bytes = 16});
    if (!layout.Validate().ok()) std::abort();
    return new Pool{layout, codec::Profile::Builtin(layout.geometry)->id()};
  }();
  return *pool;
}

void CheckBlocks(const ContextKeys& context, const std::vector<uint32_t>& blocks, size_t first) {
  const size_t per_chunk = context.descriptor.chunk_tokens / SmallPool().layout.block_tokens;
  if (blocks.size() != context.chunk_keys.size() * per_chunk) std::abort();
  for (size_t i = first; i < blocks.size(); ++i) {
    if (blocks[i] >= SmallPool().layout.num_blocks) std::abort();
  }
}

void Check(int which, const void* data, int size) {
  const Pool& pool = SmallPool();
  v1::RegisterPoolRequest registration;
  v1::LoadRequest load;
  v1::SaveRequest save;
  v1::QueryRequest query;
  if (which == 0 && registration.ParseFromArray(data, size)) {
    const auto layout = CheckedLayout(registration);
    (void)CheckedProfileId(registration.profile_id());
    if (layout.ok() && layout->planes.size() != layout->geometry.planes.size()) std::abort();
  } else if (which == 1 && load.ParseFromArray(data, size)) {
    const auto arguments = CheckedLoad(load, pool.layout, pool.profile_id, RequestLimits());
    if (arguments.ok()) {
      CheckBlocks(arguments->context, arguments->block_ids, arguments->skip_blocks);
    }
  } else if (which == 2 && save.ParseFromArray(data, size)) {
    const auto arguments = CheckedSave(save, pool.layout, pool.profile_id, RequestLimits());
    if (arguments.ok()) CheckBlocks(arguments->context, arguments->block_ids, 0);
  } else if (which == 3 && query.ParseFromArray(data, size)) {
    (void)CheckedQuery(query, pool.profile_id, RequestLimits());
    const auto geometry = CheckedGeometry(query);
    if (geometry.ok() && !geometry->Validate().ok()) std::abort();
  }
}

}  // namespace
}  // namespace sluice::client

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) sluice::client::Check(data[0] % 4, data + 1, static_cast<int>(size - 1));
  return 0;
}
