#include "tests/sim/baselines.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice::sim {
namespace {

using adapt::Actions;

// What the policies have in common: chunks in their order of choice, each asked for or computed.
class Baseline : public LoadDriver {
 public:
  explicit Baseline(const LoadModel& model) : model_(model) {}

  LoadId Add(const adapt::LoadSpec& spec) override {
    spec_ = spec;
    asked_.assign(spec.chunks.size(), false);
    loaded_ = arrived_ = computed_ = asked_;
    computing_ = false;
    num_flying_ = 0;
    num_computed_ = 0;
    asked_us_ = 0;
    throughput_ = 0;
    return 1;
  }
  void Remove(LoadId) override {}
  void Apply(LoadId, const adapt::Event& event, TimeUs now_us) override {
    if (const auto* bytes = std::get_if<adapt::BytesArrived>(&event)) {
      missing_ -= std::min(bytes->bytes, missing_);
      if (missing_ > 0) return;
      --num_flying_;
      arrived_[bytes->chunk] = true;
      if (now_us > asked_us_)
        throughput_ = asked_bytes_ * 1e6 / static_cast<double>(now_us - asked_us_);
    } else if (const auto* step = std::get_if<adapt::StepLoaded>(&event)) {
      loaded_[step->chunk] = true;
    } else if (const auto* computed = std::get_if<adapt::ChunksComputed>(&event)) {
      computing_ = false;
      OnComputed(computed->num_chunks);
    }
  }
  void Decide(const adapt::Tick& tick, TimeUs now_us) override {
    tick_ = tick;
    Next(now_us);
    actions_.finished = true;
    for (size_t i = 0; i < asked_.size(); ++i) {
      actions_.finished = actions_.finished && (loaded_[i] || computed_[i]);
    }
  }
  Actions TakeActions(LoadId) override { return std::exchange(actions_, {}); }

 protected:
  virtual void Next(TimeUs now_us) = 0;
  virtual void OnComputed(uint32_t num_chunks) {}

  void Ask(uint32_t chunk, size_t level, TimeUs now_us) {
    const uint64_t bytes = model_.LevelBytes(level, spec_.chunks[chunk].num_tokens);
    const uint32_t step = static_cast<uint32_t>(level);
    actions_.asks.push_back({chunk, step, step, adapt::AskClass::kBase, bytes, 0, ""});
    asked_[chunk] = true;
    ++num_flying_;
    missing_ = bytes;
    asked_bytes_ = static_cast<double>(bytes);
    asked_us_ = now_us;
  }
  void Compute(uint32_t chunk) {
    actions_.compute = adapt::Compute{chunk, ""};
    computing_ = true;
  }

  const LoadModel model_;
  adapt::LoadSpec spec_;
  adapt::Tick tick_;
  std::vector<bool> asked_, arrived_, loaded_, computed_;
  bool computing_ = false;
  int num_flying_ = 0;
  uint32_t num_computed_ = 0;
  double throughput_ = 0;  // of the last chunk, bytes per second; 0: none yet
  Actions actions_;

 private:
  uint64_t missing_ = 0;
  double asked_bytes_ = 0;
  TimeUs asked_us_ = 0;
};

// One chunk after the other from the front, each at the level of choice, or computed.
class Sequential : public Baseline {
 public:
  using Baseline::Baseline;

 protected:
  static constexpr int kCompute = -1;

  virtual int Choose(uint32_t chunk, TimeUs left_us) const = 0;

  void Next(TimeUs now_us) override {
    if (num_flying_ > 0 || computing_) return;
    const uint32_t next = NextChunk();
    if (next >= asked_.size()) return;
    const int level = Choose(next, spec_.start_us + spec_.slo_us - spec_.reserve_us - now_us);
    if (level == kCompute) {
      current_ = next;
      Compute(next);
    } else {
      Ask(next, static_cast<size_t>(level), now_us);
    }
  }
  void OnComputed(uint32_t) override { computed_[current_] = true; }
  uint32_t NextChunk() const {
    uint32_t next = 0;
    while (next < asked_.size() && (asked_[next] || computed_[next])) ++next;
    return next;
  }
  double BytesFrom(uint32_t chunk, size_t level) const {
    double bytes = 0;
    for (; chunk < asked_.size(); ++chunk) {
      bytes += static_cast<double>(model_.LevelBytes(level, spec_.chunks[chunk].num_tokens));
    }
    return bytes;
  }

 private:
  uint32_t current_ = 0;
};

class FixedPolicy final : public Sequential {
 public:
  FixedPolicy(const LoadModel& model, size_t level) : Sequential(model), level_(level) {}

 private:
  int Choose(uint32_t, TimeUs) const override { return static_cast<int>(level_); }

  const size_t level_;
};

// One configuration for all that remains, by a forecast.
class ForecastPolicy final : public Sequential {
 public:
  ForecastPolicy(const LoadModel& model, bool pessimistic)
      : Sequential(model), pessimistic_(pessimistic) {}

 private:
  static constexpr int kMedium = 2;

  int Choose(uint32_t chunk, TimeUs left_us) const override {
    const double rate = pessimistic_ ? tick_.link.bytes_per_s : throughput_;
    if (!(rate > 0)) return kMedium;
    const double left = static_cast<double>(left_us);
    double compute_us = 0;
    for (size_t i = chunk; i < spec_.compute_us.size(); ++i) {
      compute_us += static_cast<double>(spec_.compute_us[i]);
    }
    if (pessimistic_) compute_us *= tick_.pace.high_scale;
    const int finest = static_cast<int>(model_.size_shares.size()) - 1;
    for (int level = finest; level >= 0; --level) {
      if (BytesFrom(chunk, static_cast<size_t>(level)) / rate * 1e6 <= left) return level;
      // As lossless as the finest level.
      if (level == finest && compute_us <= left) return kCompute;
    }
    return compute_us < BytesFrom(chunk, 0) / rate * 1e6 ? kCompute : 0;
  }

  const bool pessimistic_;
};

class EqualPartsPolicy final : public Sequential {
 public:
  using Sequential::Sequential;

 private:
  static constexpr int kLevels[] = {3, 2, 1};  // the largest first

  int Choose(uint32_t chunk, TimeUs) const override {
    if (!(throughput_ > 0)) return kLevels[1];
    const double part_us =
        static_cast<double>(spec_.slo_us) / static_cast<double>(spec_.chunks.size());
    for (const int level : kLevels) {
      const double bytes = static_cast<double>(
          model_.LevelBytes(static_cast<size_t>(level), spec_.chunks[chunk].num_tokens));
      if (bytes / throughput_ * 1e6 < part_us) return level;
    }
    return kCompute;
  }
};

class CakePolicy final : public Baseline {
 public:
  using Baseline::Baseline;

 private:
  void Next(TimeUs now_us) override {
    const size_t finest = model_.size_shares.size() - 1;
    if (!computing_ && num_computed_ < asked_.size() && !arrived_[num_computed_]) {
      Compute(num_computed_);
    }
    if (num_flying_ > 0) return;
    for (size_t i = asked_.size(); i-- > num_computed_;) {
      if (asked_[i]) continue;
      Ask(static_cast<uint32_t>(i), finest, now_us);
      return;
    }
  }
  void OnComputed(uint32_t num_chunks) override {
    for (uint32_t i = 0; i < num_chunks; ++i) computed_[i] = true;
    num_computed_ = std::max(num_computed_, num_chunks);
  }
};

}  // namespace

std::unique_ptr<LoadDriver> FixedLevel(const LoadModel& model, size_t level) {
  return std::make_unique<FixedPolicy>(model, level);
}
std::unique_ptr<LoadDriver> CacheGenPaper(const LoadModel& model) {
  return std::make_unique<ForecastPolicy>(model, false);
}
std::unique_ptr<LoadDriver> CacheGenCode(const LoadModel& model) {
  return std::make_unique<EqualPartsPolicy>(model);
}
std::unique_ptr<LoadDriver> PessimisticMpc(const LoadModel& model) {
  return std::make_unique<ForecastPolicy>(model, true);
}
std::unique_ptr<LoadDriver> Cake(const LoadModel& model) {
  return std::make_unique<CakePolicy>(model);
}

}  // namespace sluice::sim
