#include "client/cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/time/clock.h"

namespace sluice::cli {

constexpr absl::Duration kQuiet = absl::Seconds(2);

Progress::Progress(std::string what, uint64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(absl::Now()) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::Update(uint64_t done) {
  if (!terminal_ || absl::Now() - start_ < kQuiet) return;
  shown_ = true;
  std::fprintf(stderr, "\r\033[K%s: %llu of %llu", what_.c_str(),
               static_cast<unsigned long long>(done), static_cast<unsigned long long>(total_));
}

}  // namespace sluice::cli
