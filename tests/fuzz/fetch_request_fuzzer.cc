// What a client says on a Fetch stream: any sequence of messages ends with answers or an error.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/time/time.h"
#include "server/chunk_cache.h"
#include "server/fetch_session.h"
#include "server/memory_store.h"
#include "server/validate.h"

namespace sluice::server {
namespace {

constexpr size_t kMaxAsks = 8;
constexpr size_t kMaxFrames = 64;

// One message of the input: a length byte, then that many bytes.
bool NextMessage(const uint8_t*& data, size_t& size, v1::FetchRequest* request) {
  if (size == 0) return false;
  const size_t bytes = std::min<size_t>(data[0], size - 1);
  if (!request->ParseFromArray(data + 1, static_cast<int>(bytes))) request->Clear();
  data += 1 + bytes;
  size -= 1 + bytes;
  return true;
}

void Run(const uint8_t* data, size_t size) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  MemoryStore store(1 << 20, 4, [now] { return now; });
  ChunkCache cache(&store, 1 << 20, 1 << 20);
  v1::FetchRequest request;
  if (!NextMessage(data, size, &request)) return;
  const auto opening = ReadFetchOpen(request.open());
  const Digest digest = opening.ok() ? opening->namespace_digest : Digest{};
  FetchSession session(&store, &cache, {digest, 4096, kMaxAsks, [now] { return now; }});
  size_t added = 0;
  while (added < kMaxFrames && NextMessage(data, size, &request)) {
    if (request.has_cancel()) session.Cancel(request.cancel().ask_id());
    const auto ask = ReadFetchAsk(request.ask(), now);
    if (ask.ok() && session.AddAsk(*ask).ok()) ++added;
  }
  session.CloseInput();
  Frame frame;
  size_t answered = 0;
  while (session.NextFrame(&frame)) answered += frame.last;
  if (answered != added) std::abort();  // every ask has one last frame
}

}  // namespace
}  // namespace sluice::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::server::Run(data, size);
  return 0;
}
