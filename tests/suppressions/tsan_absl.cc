// Tells the thread sanitizer what the packaged Abseil's locks do.
//
// libabsl_synchronization is not instrumented, so the sanitizer would see no order between the
// critical sections of an absl::Mutex and report all data that it guards. This library stands
// before it in the search order of the dynamic linker: each function calls the real one and says
// which order it makes. Conditions are evaluated by whoever holds the lock inside the real
// functions; reads there are ignored.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

class IgnoreReads {
 public:
  IgnoreReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~IgnoreReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

// The function that would have been called without this library; looked up once per `slot`.
template <typename Function>
Function* Real(std::atomic<void*>& slot, const char* symbol) {
  void* found = slot.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = dlsym(RTLD_NEXT, symbol);
    if (found == nullptr) {
      std::fprintf(stderr, "tsan_absl: %s is not in the packaged Abseil\n", symbol);
      std::abort();
    }
    slot.store(found, std::memory_order_release);
  }
  return reinterpret_cast<Function*>(found);
}

void* Address(const void* object) { return const_cast<void*>(object); }

}  // namespace

#define REAL(name, signature)               \
  static constinit std::atomic<void*> slot; \
  auto* real = Real<signature>(slot, name)

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  REAL("_ZN4absl7debian35Mutex4LockEv", void(Mutex*));
  real(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  REAL("_ZN4absl7debian35Mutex6UnlockEv", void(Mutex*));
  __tsan_release(this);
  IgnoreReads ignore;
  real(this);
}

bool Mutex::TryLock() {
  REAL("_ZN4absl7debian35Mutex7TryLockEv", bool(Mutex*));
  const bool locked = real(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::ReaderLock() {
  REAL("_ZN4absl7debian35Mutex10ReaderLockEv", void(Mutex*));
  real(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  REAL("_ZN4absl7debian35Mutex12ReaderUnlockEv", void(Mutex*));
  __tsan_release(this);
  IgnoreReads ignore;
  real(this);
}

bool Mutex::ReaderTryLock() {
  REAL("_ZN4absl7debian35Mutex13ReaderTryLockEv", bool(Mutex*));
  const bool locked = real(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Await(const Condition& condition) {
  REAL("_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE", void(Mutex*, const Condition&));
  __tsan_release(this);
  {
    IgnoreReads ignore;
    real(this, condition);
  }
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  REAL("_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE",
       bool(Mutex*, const Condition&, Duration));
  __tsan_release(this);
  bool holds = false;
  {
    IgnoreReads ignore;
    holds = real(this, condition, timeout);
  }
  __tsan_acquire(this);
  return holds;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  REAL("_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE",
       bool(Mutex*, const Condition&, Time));
  __tsan_release(this);
  bool holds = false;
  {
    IgnoreReads ignore;
    holds = real(this, condition, deadline);
  }
  __tsan_acquire(this);
  return holds;
}

void Mutex::LockWhen(const Condition& condition) {
  REAL("_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE", void(Mutex*, const Condition&));
  {
    IgnoreReads ignore;
    real(this, condition);
  }
  __tsan_acquire(this);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  REAL("_ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE",
       bool(Mutex*, const Condition&, Duration));
  bool holds = false;
  {
    IgnoreReads ignore;
    holds = real(this, condition, timeout);
  }
  __tsan_acquire(this);
  return holds;
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  REAL("_ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE",
       bool(Mutex*, const Condition&, Time));
  bool holds = false;
  {
    IgnoreReads ignore;
    holds = real(this, condition, deadline);
  }
  __tsan_acquire(this);
  return holds;
}

void CondVar::Wait(Mutex* mutex) {
  REAL("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE", void(CondVar*, Mutex*));
  __tsan_release(mutex);
  {
    IgnoreReads ignore;
    real(this, mutex);
  }
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  REAL("_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
       bool(CondVar*, Mutex*, Duration));
  __tsan_release(mutex);
  bool timed_out = false;
  {
    IgnoreReads ignore;
    timed_out = real(this, mutex, timeout);
  }
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  REAL("_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE",
       bool(CondVar*, Mutex*, Time));
  __tsan_release(mutex);
  bool timed_out = false;
  {
    IgnoreReads ignore;
    timed_out = real(this, mutex, deadline);
  }
  __tsan_acquire(mutex);
  return timed_out;
}

// HasBeenNotified is an inline atomic load of the flag that follows the mutex: order goes there
// too.
static_assert(sizeof(Notification) == 2 * sizeof(Mutex));

void Notification::Notify() {
  REAL("_ZN4absl7debian312Notification6NotifyEv", void(Notification*));
  __tsan_release(this);
  __tsan_release(reinterpret_cast<char*>(this) + sizeof(Mutex));
  real(this);
}

void Notification::WaitForNotification() const {
  REAL("_ZNK4absl7debian312Notification19WaitForNotificationEv", void(const Notification*));
  real(this);
  __tsan_acquire(Address(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  REAL("_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE",
       bool(const Notification*, Duration));
  const bool notified = real(this, timeout);
  if (notified) __tsan_acquire(Address(this));
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  REAL("_ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE",
       bool(const Notification*, Time));
  const bool notified = real(this, deadline);
  if (notified) __tsan_acquire(Address(this));
  return notified;
}

bool BlockingCounter::DecrementCount() {
  REAL("_ZN4absl7debian315BlockingCounter14DecrementCountEv", bool(BlockingCounter*));
  __tsan_release(this);
  return real(this);
}

void BlockingCounter::Wait() {
  REAL("_ZN4absl7debian315BlockingCounter4WaitEv", void(BlockingCounter*));
  real(this);
  __tsan_acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
