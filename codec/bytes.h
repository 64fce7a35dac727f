// Little-endian cursors over bytes: every parser and serialiser of the codec is written with these
// two.
//
// One thread at a time. A ByteReader refers to the bytes it was given, which must outlive it. It
// never reads past their end: a read that does not fit fails with DataLoss naming the field, and
// moves nothing.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice::codec {

static_assert(std::endian::native == std::endian::little,
              "the codec is for little-endian machines");

template <typename T>
concept Scalar = std::integral<T> || std::floating_point<T>;

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  // In all reads, `field` names the value in the error.
  template <Scalar T>
  absl::Status Read(std::string_view field, T& value) {
    if (remaining() < sizeof(T)) return Truncated(field, sizeof(T));
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return absl::OkStatus();
  }

  // An integer in [low, high]. The bounds have the type of the value.
  template <std::integral T>
  absl::Status ReadInRange(std::string_view field, std::type_identity_t<T> low,
                           std::type_identity_t<T> high, T& value) {
    T read = 0;
    if (absl::Status status = Read(field, read); !status.ok()) return status;
    if (read < low || read > high) {
      position_ -= sizeof(T);
      return absl::DataLossError(
          absl::StrCat(std::string(field), " is ", +read, ", not in ", +low, "..", +high));
    }
    value = read;
    return absl::OkStatus();
  }

  // The next `size` bytes, not copied.
  absl::Status ReadBytes(std::string_view field, size_t size, std::span<const std::byte>& value) {
    if (remaining() < size) return Truncated(field, size);
    value = bytes_.subspan(position_, size);
    position_ += size;
    return absl::OkStatus();
  }

  // Copies the next out.size() bytes.
  absl::Status ReadInto(std::string_view field, std::span<std::byte> out) {
    if (remaining() < out.size()) return Truncated(field, out.size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + position_, out.size());
    position_ += out.size();
    return absl::OkStatus();
  }

  // A u32 length, at most `max_bytes`, and that many bytes.
  absl::Status ReadText(std::string_view field, uint32_t max_bytes, std::string& value) {
    const size_t begin = position_;
    uint32_t size = 0;
    if (absl::Status status = ReadInRange<uint32_t>(field, 0, max_bytes, size); !status.ok()) {
      return status;
    }
    if (remaining() < size) {
      absl::Status status = Truncated(field, size);
      position_ = begin;
      return status;
    }
    value.assign(AsText(bytes_.subspan(position_, size)));
    position_ += size;
    return absl::OkStatus();
  }

  // Fails if bytes are left over; `what` names the thing that should have ended.
  absl::Status ExpectEnd(std::string_view what) const {
    if (remaining() == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(std::string(what), " has ", remaining(), " bytes too many"));
  }

 private:
  absl::Status Truncated(std::string_view field, size_t size) const {
    return absl::DataLossError(absl::StrCat(std::string(field), " at byte ", position_, " needs ",
                                            size, " bytes, but ", remaining(), " are left"));
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

class ByteWriter {
 public:
  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return AsBytes(bytes_); }
  std::string Take() && { return std::move(bytes_); }

  template <Scalar T>
  void Write(std::type_identity_t<T> value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }

  void WriteBytes(std::span<const std::byte> bytes) { bytes_.append(AsText(bytes)); }

  // A u32 length and the bytes. REQUIRES: text.size() < 2^32.
  void WriteText(std::string_view text) {
    Write<uint32_t>(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }

  // Overwrites a value written before. REQUIRES: it lies within size().
  template <Scalar T>
  void Patch(size_t position, std::type_identity_t<T> value) {
    std::memcpy(bytes_.data() + position, &value, sizeof(T));
  }

 private:
  std::string bytes_;
};

}  // namespace sluice::codec
