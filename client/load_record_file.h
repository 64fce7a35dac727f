// Records of loads as files.
//
//   offset  size  what
//   0       8     "SLUICELR"
//   8       4     version, 1
//   12      4     zero
//   16      8     size of the message
//   24      size  v1.LoadRecord (proto/sluice/v1/load_record.proto)
//   then    8     XXH3-64 of all bytes before
//
// Numbers are little-endian. Fields may be added to the message within a version, for programs that
// need not know them. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/load_record.h"

namespace sluice::client {

inline constexpr std::string_view kLoadRecordMagic = "SLUICELR";
inline constexpr uint32_t kLoadRecordVersion = 1;
inline constexpr size_t kMaxRecordBytes = size_t{64} << 20;
inline constexpr int kMaxRecordedEvents = 1 << 20;
inline constexpr int kMaxRecordedSteps = 16;                  // of a chunk
inline constexpr int kMaxRecordedReasons = 256;               // that differ
inline constexpr size_t kMaxRecordedText = size_t{64} << 10;  // bytes, each

std::string SerializeRecord(const LoadRecord& record);
// InvalidArgument: no record, or of a later version. DataLoss: damaged; a record is read whole or
// not at all. What is accepted can be replayed.
absl::StatusOr<LoadRecord> ParseRecord(std::string_view bytes);
// Writes the right checksum behind bytes that were changed. REQUIRES: at least as many as it has.
void SealRecord(std::string& bytes);

}  // namespace sluice::client
