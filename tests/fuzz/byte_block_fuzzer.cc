// The input is a u32 length and a block that may decode to so many bytes; the whole input is also
// coded and decoded again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "codec/byte_block.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::codec;
  if (size > kMaxByteBlockBytes) return 0;
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  ByteReader reader(input);
  uint32_t length = 0;
  if (reader.ReadInRange<uint32_t>("length", 0, 1 << 16, length).ok()) {
    std::vector<std::byte> out(length);
    (void)DecodeByteBlock("block", reader, out).ok();
  }
  ByteWriter writer;
  EncodeByteBlock(input, writer);
  if (writer.size() > kByteBlockHeaderBytes + size) std::abort();
  ByteReader block(writer.bytes());
  std::vector<std::byte> decoded(size);
  if (!DecodeByteBlock("block", block, decoded).ok()) std::abort();
  if (!block.ExpectEnd("block").ok()) std::abort();
  if (!std::equal(decoded.begin(), decoded.end(), input.begin(), input.end())) std::abort();
  return 0;
}
