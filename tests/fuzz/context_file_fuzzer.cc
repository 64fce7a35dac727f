// Any bytes: parse, and if accepted write the same bytes again. Once more with the header's
// checksum made right, so that the fields behind it are reached.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "codec/bytes.h"
#include "codec/container.h"
#include "codec/context_file.h"

namespace sluice::codec {
namespace {

void Check(const std::string& bytes) {
  const auto file = ParseContextFile(AsBytes(bytes));
  if (!file.ok()) return;
  if (!file->Validate().ok() || SerializeContextFile(*file) != bytes) std::abort();
}

}  // namespace
}  // namespace sluice::codec

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::codec;
  std::string bytes(data, data + size);
  Check(bytes);
  uint32_t header_bytes = 0;
  if (size < 24) return 0;
  std::memcpy(&header_bytes, data + 12, sizeof(header_bytes));
  if (header_bytes < 24 || header_bytes > size) return 0;
  const size_t end = header_bytes - sizeof(uint64_t);
  const uint64_t checksum = Checksum(AsBytes(bytes).first(end));
  std::memcpy(bytes.data() + end, &checksum, sizeof(checksum));
  Check(bytes);
  return 0;
}
