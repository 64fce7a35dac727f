// Any bytes: parse, verify, and if accepted write the same bytes again. Once more with the header's
// checksum made right, so that the fields behind it are reached.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "codec/bytes.h"
#include "codec/container.h"

namespace sluice::codec {
namespace {

void Check(std::span<const std::byte> bytes) {
  const auto header = ParseChunkHeader(bytes);
  const bool whole = VerifyContainer(bytes).ok();
  if (!header.ok()) {
    if (whole) std::abort();
    return;
  }
  if (whole && header->total_bytes() != bytes.size()) std::abort();
  if (SerializeChunkHeader(*header) != AsText(bytes.first(header->header_bytes))) std::abort();
}

}  // namespace
}  // namespace sluice::codec

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::codec;
  std::string bytes(data, data + size);
  Check(AsBytes(bytes));
  const auto header_bytes = PeekHeaderBytes(AsBytes(bytes));
  if (!header_bytes.ok() || *header_bytes > size) return 0;
  const size_t end = *header_bytes - sizeof(uint64_t);
  const uint64_t checksum = Checksum(AsBytes(bytes).first(end));
  std::memcpy(bytes.data() + end, &checksum, sizeof(checksum));
  Check(AsBytes(bytes));
  return 0;
}
