#include "client/node_service_hold.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "client/grpc_status.h"

namespace sluice::client {
namespace {

absl::Status Stopping() { return absl::UnavailableError("the daemon is stopping"); }

}  // namespace

class PoolHolds::Call final : public Reactor {
 public:
  Call(PoolHolds& holds, uint64_t pool_id) : holds_(holds), pool_id_(pool_id) {}

  // `self` is kept until gRPC is done with the call.
  void Begin(std::shared_ptr<Call> self, const std::function<absl::Status()>& check) {
    self_ = std::move(self);
    absl::Status status = holds_.Add(pool_id_, self_);
    if (status.ok()) status = check();
    if (status.ok()) {
      StartWrite(&response_);
    } else {
      End(status, /*gone=*/false);
    }
  }

  // The first end counts. `gone`: it is the engine's.
  void End(const absl::Status& status, bool gone) {
    {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(ended_, true)) return;
      gone_ = gone;
    }
    Finish(ToGrpc(status));
  }

  void OnCancel() override { End(absl::CancelledError("the engine ended it"), /*gone=*/true); }

  void OnDone() override {
    const std::shared_ptr<Call> self = std::move(self_);
    holds_.Remove(pool_id_, this);
    bool gone = false;
    {
      absl::MutexLock lock(&mutex_);
      gone = gone_;
    }
    if (gone) holds_.on_gone_(pool_id_);
  }

 private:
  PoolHolds& holds_;
  const uint64_t pool_id_;
  const v1::HoldPoolResponse response_;
  std::shared_ptr<Call> self_;
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
};

PoolHolds::Reactor* PoolHolds::Hold(uint64_t pool_id, const std::function<absl::Status()>& check) {
  auto call = std::make_shared<Call>(*this, pool_id);
  Call* const reactor = call.get();
  reactor->Begin(std::move(call), check);
  return reactor;
}

absl::Status PoolHolds::Add(uint64_t pool_id, std::shared_ptr<Call> call) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return Stopping();
  if (calls_.try_emplace(pool_id, std::move(call)).second) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("pool_id ", pool_id, " is held by another call"));
}

void PoolHolds::Remove(uint64_t pool_id, const Call* call) {
  absl::MutexLock lock(&mutex_);
  const auto found = calls_.find(pool_id);
  if (found != calls_.end() && found->second.get() == call) calls_.erase(found);
}

void PoolHolds::End(uint64_t pool_id) {
  std::shared_ptr<Call> call;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = calls_.find(pool_id);
    if (found == calls_.end()) return;
    call = found->second;
  }
  call->End(absl::OkStatus(), /*gone=*/false);
}

void PoolHolds::Stop() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    for (const auto& [pool_id, call] : calls_) calls.push_back(call);
  }
  for (const std::shared_ptr<Call>& call : calls) call->End(Stopping(), /*gone=*/false);
}

}  // namespace sluice::client
