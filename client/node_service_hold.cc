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
  Call(const PoolHolds& holds, uint64_t pool_id)
      : state_(holds.state_), on_gone_(holds.on_gone_), pool_id_(pool_id) {}

  // `self` is kept until gRPC is done with the call.
  void Begin(std::shared_ptr<Call> self, const std::function<absl::Status()>& check) {
    self_ = std::move(self);
    absl::Status status = state_->Add(pool_id_, self_);
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
    state_->Remove(pool_id_, this);
    bool gone = false;
    {
      absl::MutexLock lock(&mutex_);
      gone = gone_;
    }
    if (gone) on_gone_(pool_id_);
    absl::MutexLock lock(&state_->mutex);
    --state_->running;
  }

 private:
  const std::shared_ptr<State> state_;
  const std::function<void(uint64_t pool_id)>& on_gone_;  // while the call is running
  const uint64_t pool_id_;
  const v1::HoldPoolResponse response_;
  std::shared_ptr<Call> self_;
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
};

PoolHolds::~PoolHolds() {
  State& state = *state_;
  const auto idle = [&state]()
                        ABSL_SHARED_LOCKS_REQUIRED(state.mutex) { return state.running == 0; };
  absl::MutexLock lock(&state.mutex);
  state.mutex.Await(absl::Condition(&idle));
}

PoolHolds::Reactor* PoolHolds::Hold(uint64_t pool_id, const std::function<absl::Status()>& check) {
  auto call = std::make_shared<Call>(*this, pool_id);
  Call* const reactor = call.get();
  {
    absl::MutexLock lock(&state_->mutex);
    ++state_->running;
  }
  reactor->Begin(std::move(call), check);
  return reactor;
}

absl::Status PoolHolds::State::Add(uint64_t pool_id, std::shared_ptr<Call> call) {
  absl::MutexLock lock(&mutex);
  if (stopped) return Stopping();
  if (calls.try_emplace(pool_id, std::move(call)).second) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("pool_id ", pool_id, " is held by another call"));
}

void PoolHolds::State::Remove(uint64_t pool_id, const Call* call) {
  absl::MutexLock lock(&mutex);
  const auto found = calls.find(pool_id);
  if (found != calls.end() && found->second.get() == call) calls.erase(found);
}

void PoolHolds::End(uint64_t pool_id) {
  std::shared_ptr<Call> call;
  {
    absl::MutexLock lock(&state_->mutex);
    const auto found = state_->calls.find(pool_id);
    if (found == state_->calls.end()) return;
    call = found->second;
  }
  call->End(absl::OkStatus(), /*gone=*/false);
}

void PoolHolds::Stop() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopped = true;
    for (const auto& [pool_id, call] : state_->calls) calls.push_back(call);
  }
  for (const std::shared_ptr<Call>& call : calls) call->End(Stopping(), /*gone=*/false);
}

}  // namespace sluice::client
