#include "client/loader.h"

#include <algorithm>
#include <utility>

#include "adapt/planner.h"
#include "client/decode_pool.h"
#include "client/load_plan.h"
#include "client/load_session.h"
#include "client/load_spec.h"
#include "client/shared_link.h"
#include "client/transfer_share.h"

namespace sluice::client {
namespace {

// Of transfers that are over, for loads that begin a moment later than others of the same context.
constexpr uint64_t kKeptTransferBytes = uint64_t{32} << 20;

class StreamLoader final : public Loader {
 public:
  StreamLoader(std::shared_ptr<RemoteStore> store, Config config)
      : store_(std::move(store)), config_(config), pool_(config.decode_threads) {}

  LoadResult Load(std::shared_ptr<const codec::Profile> profile, const LoadOptions& options,
                  PlaneSink& sink, const OnOutcomes& on_outcomes, LoadControl* control) override {
    return LoadSession(*store_, link_, share_, pool_, config_, std::move(profile), options, sink,
                       on_outcomes, control)
        .Run();
  }

  uint32_t CountPlanned(const codec::Profile& profile, const LoadOptions& options,
                        std::span<const ChunkManifest> manifests,
                        const adapt::ComputePace& pace) const override {
    const adapt::LinkView link = link_.View();
    if (!WorthAsking(options, pace.scale, link)) return 0;
    const LoadTerms terms = MakeTerms(config_, profile, options, pool_.num_threads(), NowUs());
    adapt::LoadSpec spec = MakeSpec(terms, config_, options, pace.scale);
    for (uint32_t i = 0; i < manifests.size(); ++i) {
      const uint32_t chunk_index = options.skip_chunks + i;
      ChunkPlan plan = PlanChunk(profile, options, chunk_index, manifests[i]);
      AddChunk(terms, options, pool_, chunk_index, plan, spec);
    }
    adapt::LoadPlanner planner(std::move(spec));
    const adapt::Actions actions = planner.Apply(adapt::Tick{link, pace}, terms.start_us);
    auto planned = static_cast<uint32_t>(manifests.size());
    for (const adapt::GiveUp& give_up : actions.give_ups) {
      planned = std::min(planned, give_up.chunk);
    }
    return planned;
  }

  LinkStatus link_status() const override {
    LinkStatus status;
    status.breaker_open = link_.breaker_open();
    status.bytes_per_s = link_.View().bytes_per_s;
    status.forecast_error = link_.forecast_error();
    return status;
  }

 private:
  const std::shared_ptr<RemoteStore> store_;
  const Config config_;
  mutable SharedLink link_;
  TransferShare share_{kKeptTransferBytes};
  DecodePool pool_;
};

}  // namespace

std::unique_ptr<Loader> Loader::Create(std::shared_ptr<RemoteStore> store, Config config) {
  return std::make_unique<StreamLoader>(std::move(store), config);
}

}  // namespace sluice::client
