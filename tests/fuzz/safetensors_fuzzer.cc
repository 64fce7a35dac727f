// The header of a safetensors file, which may come from anyone.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "client/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = sluice::client::ParseSafetensorsHeader(bytes, size);
  if (!header.ok()) return 0;
  // What was accepted lies in the file.
  for (const auto& [name, entry] : header->tensors) {
    if (entry.begin > entry.end || entry.end > size - header->data_offset) std::abort();
  }
  return 0;
}
