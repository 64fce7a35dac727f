// How text stands in a log line, which is event=NAME and then key=value throughout.
//
// Thread-safe: no state.
#pragma once

#include <string>

namespace sluice::client {

// As it is, or in double quotes with C escapes if it is empty or has blanks, quotes, equals signs
// or control characters: a peer's text cannot add a key or a line.
std::string Quoted(const std::string& text);

}  // namespace sluice::client
