#include "client/bus_guard.h"

#include <signal.h>
#include <sys/mman.h>

namespace sluice::client {
namespace {

constinit thread_local BusGuard* current_guard = nullptr;

}  // namespace

struct BusGuardHandler {
  // Makes only calls that are plain system calls.
  static void OnBus(int signal, siginfo_t* info, void* /*context*/) {
    BusGuard* guard = current_guard;
    const auto* address = static_cast<const std::byte*>(info->si_addr);
    if (guard != nullptr && address >= guard->base_ && address < guard->base_ + guard->bytes_) {
      guard->lost_->store(true);
      void* replaced =
          mmap(guard->base_, guard->bytes_, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
      if (replaced != MAP_FAILED) return;  // the access is made again
    }
    ::signal(signal, SIG_DFL);  // the access is made again, and ends the process
  }

  static bool Install() {
    struct sigaction action = {};
    action.sa_sigaction = &OnBus;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, nullptr) == 0;
  }
};

BusGuard::BusGuard(void* base, size_t bytes, std::atomic<bool>* lost)
    : base_(static_cast<std::byte*>(base)), bytes_(bytes), lost_(lost) {
  [[maybe_unused]] static const bool installed = BusGuardHandler::Install();
  current_guard = this;
}

BusGuard::~BusGuard() { current_guard = nullptr; }

}  // namespace sluice::client
