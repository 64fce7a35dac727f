// Chunks that need many more bits than their profile was measured at, as people are told of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/json.h"
#include "codec/rate_check.h"

namespace sluice::cli {

// The rates of chunks of one profile; empty if it has no figure to compare with.
class RateSummary {
 public:
  // REQUIRES: CheckCompatible.
  void Add(const codec::Profile& profile, const codec::ChunkHeader& header);
  void Add(const codec::Profile& profile, const std::vector<std::string>& containers);

  bool empty() const { return chunks_ == 0; }
  // "2.14 bits/element at the finest lossy level, usually 2.19". REQUIRES: not empty.
  std::string Text() const;
  // What a user should know; nullopt if all rates are usual.
  std::optional<std::string> Note() const;
  // null if empty.
  Json ToJson() const;

 private:
  size_t chunks_ = 0;
  size_t unusual_ = 0;
  double tokens_ = 0;
  double bits_ = 0;  // per element, times tokens
  double usual_ = 0;
};

// The same note for chunks of which only the number is known.
std::optional<std::string> UnusualRateNote(size_t unusual_chunks);

}  // namespace sluice::cli
