#include "codec/exact_planes.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/byte_block.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

// Elements of a piece: long enough that a table costs little, short enough to decode pieces in
// parallel.
constexpr size_t kPieceElements = 1 << 16;
static_assert(kPieceElements <= kMaxByteBlockBytes);

// Turning a float left by one bit puts its sign below the mantissa, so that the highest byte holds
// exponent bits alone, which compress best. Words that are no floats stay as they are.
template <typename Word>
constexpr int kTurn = sizeof(Word) > 1 ? 1 : 0;

// Gathers byte `index` of every turned element.
template <typename Word>
void Split(std::span<const std::byte> elements, size_t index, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Word word;
    std::memcpy(&word, elements.data() + i * sizeof(Word), sizeof(Word));
    out[i] = static_cast<std::byte>(std::rotl(word, kTurn<Word>) >> (8 * index));
  }
}

// `parts` holds the byte planes one after another, elements.size() / sizeof(Word) bytes each.
template <typename Word>
void Join(std::span<const std::byte> parts, std::span<std::byte> elements) {
  const size_t count = elements.size() / sizeof(Word);
  for (size_t i = 0; i < count; ++i) {
    Word word = 0;
    for (size_t index = 0; index < sizeof(Word); ++index) {
      word |= static_cast<Word>(static_cast<Word>(parts[index * count + i]) << (8 * index));
    }
    word = std::rotr(word, kTurn<Word>);
    std::memcpy(elements.data() + i * sizeof(Word), &word, sizeof(Word));
  }
}

template <typename Word>
void Encode(std::span<const std::byte> plane, ByteWriter& writer) {
  std::vector<std::byte> part;
  while (!plane.empty()) {
    const size_t piece_bytes = std::min(plane.size(), kPieceElements * sizeof(Word));
    part.resize(piece_bytes / sizeof(Word));
    for (size_t index = 0; index < sizeof(Word); ++index) {
      Split<Word>(plane.first(piece_bytes), index, part);
      EncodeByteBlock(part, writer);
    }
    plane = plane.subspan(piece_bytes);
  }
}

template <typename Word>
absl::Status Decode(std::string_view field, ByteReader& reader, std::span<std::byte> plane) {
  std::vector<std::byte> parts;
  while (!plane.empty()) {
    const size_t piece_bytes = std::min(plane.size(), kPieceElements * sizeof(Word));
    const size_t count = piece_bytes / sizeof(Word);
    parts.resize(piece_bytes);
    for (size_t index = 0; index < sizeof(Word); ++index) {
      const std::span<std::byte> part = std::span(parts).subspan(index * count, count);
      RETURN_IF_ERROR(DecodeByteBlock(field, reader, part));
    }
    Join<Word>(parts, plane.first(piece_bytes));
    plane = plane.subspan(piece_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

void EncodeExactPlane(const PlaneSpec& spec, uint32_t num_tokens, std::span<const std::byte> plane,
                      ByteWriter& writer) {
  switch (ElementBytes(spec.element_type)) {
    case 1:
      return Encode<uint8_t>(plane, writer);
    case 2:
      return Encode<uint16_t>(plane, writer);
    case 4:
      return Encode<uint32_t>(plane, writer);
  }
}

absl::Status DecodeExactPlane(std::string_view field, const PlaneSpec& spec, uint32_t num_tokens,
                              ByteReader& reader, std::span<std::byte> plane) {
  if (plane.size() != num_tokens * spec.bytes_per_token()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(field), ": plane buffer has ",
                                                   plane.size(), " bytes, not ",
                                                   num_tokens * spec.bytes_per_token()));
  }
  switch (ElementBytes(spec.element_type)) {
    case 1:
      return Decode<uint8_t>(field, reader, plane);
    case 2:
      return Decode<uint16_t>(field, reader, plane);
    case 4:
      return Decode<uint32_t>(field, reader, plane);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(field), ": element type is not known"));
}

}  // namespace sluice::codec
