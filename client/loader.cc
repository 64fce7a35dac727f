#include "client/loader.h"

#include <utility>

#include "client/decode_pool.h"
#include "client/load_session.h"
#include "client/shared_link.h"

namespace sluice::client {
namespace {

class StreamLoader final : public Loader {
 public:
  StreamLoader(std::shared_ptr<RemoteStore> store, Config config)
      : store_(std::move(store)), config_(config), pool_(config.decode_threads) {}

  LoadResult Load(const codec::Profile& profile, const LoadOptions& options, PlaneSink& sink,
                  const std::function<void(const ChunkOutcome&)>& on_outcome,
                  LoadControl* control) override {
    return LoadSession(*store_, link_, pool_, config_, profile, options, sink, on_outcome, control)
        .Run();
  }

  LinkStatus link_status() const override {
    LinkStatus status;
    status.breaker_open = link_.breaker_open();
    status.bytes_per_s = link_.View().bytes_per_s;
    return status;
  }

 private:
  const std::shared_ptr<RemoteStore> store_;
  const Config config_;
  mutable SharedLink link_;
  DecodePool pool_;
};

}  // namespace

std::string_view RecomputeReasonName(RecomputeReason reason) {
  switch (reason) {
    case RecomputeReason::kNone:
      return "none";
    case RecomputeReason::kNotStored:
      return "not_stored";
    case RecomputeReason::kLate:
      return "late";
    case RecomputeReason::kServerUnavailable:
      return "server_unavailable";
    case RecomputeReason::kDamaged:
      return "damaged";
    case RecomputeReason::kBreakerOpen:
      return "breaker_open";
    case RecomputeReason::kAfterCut:
      return "after_cut";
    case RecomputeReason::kComputed:
      return "computed";
    case RecomputeReason::kCancelled:
      return "cancelled";
    case RecomputeReason::kUnsupported:
      return "unsupported";
    case RecomputeReason::kNodeBusy:
      return "node_busy";
    case RecomputeReason::kComputeFaster:
      return "compute_faster";
  }
  return "unknown";
}

std::unique_ptr<Loader> Loader::Create(std::shared_ptr<RemoteStore> store, Config config) {
  return std::make_unique<StreamLoader>(std::move(store), config);
}

}  // namespace sluice::client
