// Profile::Parse on any bytes: as they are, and with the right checksum behind them.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/bytes.h"
#include "codec/container.h"
#include "codec/profile.h"

namespace sluice::codec {
namespace {

void ParseAndCompare(const std::string& bytes) {
  const absl::StatusOr<Profile> profile = Profile::Parse(AsBytes(bytes));
  // What is accepted is whole: it keeps its bytes, and its geometry is valid.
  if (profile.ok() && (profile->bytes() != bytes || !profile->geometry().Validate().ok())) {
    std::abort();
  }
}

}  // namespace
}  // namespace sluice::codec

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  sluice::codec::ParseAndCompare(bytes);
  const uint64_t checksum = sluice::codec::Checksum(sluice::codec::AsBytes(bytes));
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  sluice::codec::ParseAndCompare(bytes);
  return 0;
}
