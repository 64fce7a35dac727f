// ParseRecord on any bytes: as they are, and with the right checksum. What is accepted keeps its
// meaning when it is written and read again, and can be replayed and told.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "client/load_record_file.h"
#include "client/load_story.h"

namespace sluice::client {
namespace {

// Replaying takes the product of both.
constexpr size_t kMaxChunks = 200, kMaxEvents = 2000;

void Check(const std::string& bytes) {
  const absl::StatusOr<LoadRecord> record = ParseRecord(bytes);
  if (!record.ok()) return;
  const std::string again = SerializeRecord(*record);
  const absl::StatusOr<LoadRecord> read = ParseRecord(again);
  if (!read.ok() || SerializeRecord(*read) != again) std::abort();
  TellChunks(*record);
  if (record->spec.chunks.size() > kMaxChunks || record->events.size() > kMaxEvents) return;
  (void)Replay(*record);
}

}  // namespace
}  // namespace sluice::client

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  sluice::client::Check(bytes);
  if (bytes.size() < sizeof(uint64_t)) return 0;
  sluice::client::SealRecord(bytes);
  sluice::client::Check(bytes);
  return 0;
}
