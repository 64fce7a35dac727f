// A whole chunk from anyone, for a decoder with a calibrated profile: as it is, and with the
// profile's id and all checksums made right, so that the segments behind them are decoded.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/bytes.h"
#include "tests/golden/calibrated_cases.h"

namespace sluice::codec {
namespace {

void Decode(const std::string& container) {
  static const Profile* const profile = new Profile(ExampleCalibratedProfile());
  std::string bytes = container;
  DecodeAllLevels(*profile, bytes).IgnoreError();
  if (!SealChunk(*profile, bytes)) return;
  const bool whole = VerifyContainer(AsBytes(bytes)).ok();
  if (DecodeAllLevels(*profile, bytes).ok() && !whole) std::abort();
}

}  // namespace
}  // namespace sluice::codec

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::codec::Decode(std::string(data, data + size));
  return 0;
}
