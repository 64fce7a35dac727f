#include "client/cli/record.h"

#include "client/file_io.h"
#include "client/load_record_file.h"
#include "codec/bytes.h"

namespace sluice::cli {

const char kProgram[] = "sluice " SLUICE_VERSION;

absl::Status WriteRecord(const std::string& path, client::LoadRecord record) {
  record.program = kProgram;
  const std::string bytes = client::SerializeRecord(record);
  const std::span<const std::byte> parts[] = {codec::AsBytes(bytes)};
  return client::WriteFile(path, parts);
}

}  // namespace sluice::cli
