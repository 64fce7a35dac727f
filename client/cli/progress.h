// A line on stderr that says how far a long command is.
//
// One thread at a time. Silent unless stderr is a terminal and the work has taken over two seconds.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace sluice::cli {

class Progress {
 public:
  // "what: 3 of 17".
  Progress(std::string what, uint64_t total);
  ~Progress();  // wipes the line

  void Update(uint64_t done);

 private:
  std::string what_;
  uint64_t total_ = 0;
  bool terminal_ = false;
  bool shown_ = false;
  absl::Time start_;
};

}  // namespace sluice::cli
