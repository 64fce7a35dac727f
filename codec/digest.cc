#include "codec/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace sluice::codec {
namespace {

int HexValue(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

Digest Sha256(std::span<const std::byte> bytes) {
  Digest digest;
  // Fails only without memory or without OpenSSL's default provider: no name made then can be
  // trusted.
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    std::abort();
  }
  return digest;
}

struct Sha256Stream::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

// As above, these calls fail only where no digest can be trusted.
Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {
  if (EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) std::abort();
}

Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Append(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) != 1) std::abort();
}

Digest Sha256Stream::Finish() {
  Digest digest;
  if (EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) != 1) std::abort();
  return digest;
}

std::string DigestHex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * digest.size());
  for (uint8_t byte : digest) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

absl::StatusOr<Digest> DigestFromHex(std::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a digest has ", 2 * digest.size(), " hexadecimal digits, not ", hex.size()));
  }
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = HexValue(hex[2 * i]);
    const int low = HexValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) {
      return absl::InvalidArgumentError("a digest has a character that is no hexadecimal digit");
    }
    digest[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return digest;
}

absl::StatusOr<Digest> DigestFromBytes(std::string_view bytes, std::string_view what) {
  Digest digest;
  if (bytes.size() != digest.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), " has ", bytes.size(), " bytes, not ", digest.size()));
  }
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

std::string_view DigestBytes(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace sluice::codec
