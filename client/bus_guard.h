// Survives engines that shorten their shared memory while it is being read or written.
//
// Touching a mapped page behind the end of its file raises SIGBUS, which would end the daemon and
// with it every other engine's cache. While a BusGuard is alive, such an access of its thread to
// its range makes the range private zero pages instead, for good, and is noted in `lost`.
#pragma once

#include <atomic>
#include <cstddef>

namespace sluice::client {

// One per thread at a time. The first one of the process installs the handler of SIGBUS; faults
// elsewhere still end the process.
class BusGuard {
 public:
  // The range [base, base + bytes) is a whole mapping. `lost` must outlive the guard.
  BusGuard(void* base, size_t bytes, std::atomic<bool>* lost);
  ~BusGuard();
  BusGuard(const BusGuard&) = delete;
  BusGuard& operator=(const BusGuard&) = delete;

 private:
  friend struct BusGuardHandler;

  std::byte* const base_;
  const size_t bytes_;
  std::atomic<bool>* const lost_;
};

}  // namespace sluice::client
