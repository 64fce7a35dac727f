#include "client/log_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice::client {

std::string Quoted(const std::string& text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return absl::ascii_isgraph(c) && c != '"' && c != '=' && c != '\\';
  });
  return plain ? text : absl::StrCat("\"", absl::CHexEscape(text), "\"");
}

}  // namespace sluice::client
