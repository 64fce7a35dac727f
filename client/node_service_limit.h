// Ends a call of the node's service that has gone on for too long.
//
// A handler that writes to an engine which does not read waits inside gRPC, where no poll of ours
// reaches it; cancelling the call from outside makes the write return. Thread-safe by itself.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sluice::client {

// Cancels the call at `deadline`, unless this object has gone before. `context` must outlive it.
class CallLimit {
 public:
  CallLimit(grpc::ServerContext* context, absl::Time deadline) : call_(std::make_shared<Call>()) {
    {
      absl::MutexLock lock(&call_->mutex);
      call_->context = context;
    }
    alarm_.Set(absl::ToChronoTime(deadline), [call = call_](bool expired) {
      absl::MutexLock lock(&call->mutex);
      if (expired && call->context != nullptr) call->context->TryCancel();
    });
  }
  ~CallLimit() {
    absl::MutexLock lock(&call_->mutex);
    call_->context = nullptr;
  }

 private:
  // Shared with the alarm, which may still be on its way when this object goes.
  struct Call {
    absl::Mutex mutex;
    grpc::ServerContext* context ABSL_GUARDED_BY(mutex) = nullptr;
  };
  const std::shared_ptr<Call> call_;
  grpc::Alarm alarm_;
};

}  // namespace sluice::client
