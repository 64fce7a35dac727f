// The golden files of the codec's framing: small inputs that its parsers must accept or refuse for
// ever.
#pragma once

#include <string>
#include <vector>

#include "codec/container.h"
#include "codec/context_file.h"

namespace sluice::codec {

struct GoldenCase {
  std::string kind;      // "container" or "context_file"
  std::string name;      // the file is tests/golden/{accept,reject}/<kind>/<name>.bin
  std::string bytes;     // its contents
  std::string expected;  // part of the error's message; empty if the file must be accepted
};

// The container of FORMAT.md's worked example: 2 groups, level 0 and lossless.
std::string ExampleContainer();
ContextFile ExampleContextFile();

// Writes the right checksum over a header that was changed. REQUIRES: header_bytes, at offset 12,
// is between 24 and bytes.size().
void SealHeader(std::string& bytes);

std::vector<GoldenCase> GoldenCases();

}  // namespace sluice::codec
