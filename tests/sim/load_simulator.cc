#include "tests/sim/load_simulator.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"

namespace sluice::sim {
namespace {

constexpr TimeUs kTickUs = 500;
constexpr TimeUs kPlanEveryUs = 10000;

double BytesIn(const LinkModel& link, TimeUs now_us) {
  return link(now_us) * static_cast<double>(kTickUs) * 1e-6;
}

// The far side and everything in between.
class SimulatedLoad {
 public:
  explicit SimulatedLoad(const SimConfig& config)
      : config_(config),
        planner_(config.spec),
        random_(config.seed),
        final_(config.spec.chunks.size(), false) {}

  SimResult Run() {
    const adapt::LoadSpec& spec = config_.spec;
    const TimeUs end_us = spec.start_us + spec.slo_us;
    Plan(spec.start_us);
    for (TimeUs now = spec.start_us; !planner_.finished(); now += kTickUs) {
      if (now > end_us) {
        Broken(now, "not finished at the end of the SLO");
        break;
      }
      if (now == config_.link_lost_us) {
        planner_.OnLinkLost(false);
        queue_.clear();
        event_ = true;
      }
      Compute(now);
      Deliver(now);
      Decode(now);
      if (event_ || now % kPlanEveryUs == 0 || now >= end_us) Plan(now);
      event_ = false;
      result_.finished_us = now - spec.start_us;
    }
    Finish();
    return std::move(result_);
  }

 private:
  struct Answer {
    adapt::Ask ask;
    TimeUs asked_us = 0;
    TimeUs ready_us = 0;  // the ask has reached the server and the first byte could be back
    uint64_t sent_bytes = 0;
    bool failed = false;
  };
  struct Decoding {
    uint32_t chunk = 0;
    uint32_t step = 0;
    double bytes = 0;
  };

  void Broken(TimeUs now, const std::string& what) {
    result_.broken.push_back(absl::StrCat("t=", now, " ", what));
  }

  void Compute(TimeUs now) {
    const double seconds = static_cast<double>(now - config_.spec.start_us) * 1e-6;
    const uint32_t computed = static_cast<uint32_t>(seconds * config_.computed_per_s);
    if (computed <= computed_) return;
    computed_ = computed;
    planner_.OnComputed(computed);
    event_ = true;
  }

  // Carries one tick's bytes, bases first.
  void Deliver(TimeUs now) {
    budget_ += BytesIn(config_.link, now);
    while (budget_ >= 1) {
      auto best = queue_.end();
      for (auto it = queue_.begin(); it != queue_.end(); ++it) {
        if (it->ready_us > now) continue;
        if (best == queue_.end() || it->ask.ask_class < best->ask.ask_class) best = it;
      }
      if (best == queue_.end()) {
        budget_ = 0;  // an idle link saves nothing up
        return;
      }
      const uint64_t frame = std::min(config_.frame_bytes, best->ask.bytes - best->sent_bytes);
      if (budget_ < static_cast<double>(frame)) return;
      budget_ -= static_cast<double>(frame);
      if (best->sent_bytes == 0) estimator_.OnFirstByte(now - best->asked_us, 0);
      best->sent_bytes += frame;
      result_.received_bytes += frame;
      estimator_.OnBytes(frame, now);
      planner_.OnBytes(best->ask.chunk, best->ask.first_step, frame);
      event_ = true;
      if (best->sent_bytes < best->ask.bytes) continue;
      if (best->failed) {
        planner_.OnStepFailed(best->ask.chunk, best->ask.first_step, true);
      } else {
        decoding_.push_back(
            {best->ask.chunk, best->ask.last_step, static_cast<double>(best->ask.bytes)});
      }
      queue_.erase(best);
    }
  }

  void Decode(TimeUs now) {
    double budget = config_.decode_bytes_per_s * static_cast<double>(kTickUs) * 1e-6;
    while (!decoding_.empty() && budget > 0) {
      const double part = std::min(budget, decoding_.front().bytes);
      budget -= part;
      decoding_.front().bytes -= part;
      if (decoding_.front().bytes > 0) return;
      const int before = planner_.loaded_step(decoding_.front().chunk);
      planner_.OnStepLoaded(decoding_.front().chunk, decoding_.front().step);
      if (planner_.loaded_step(decoding_.front().chunk) < before) Broken(now, "a step fell");
      decoding_.pop_front();
      event_ = true;
    }
  }

  void Plan(TimeUs now) {
    const adapt::LinkView view = estimator_.View(now);
    const adapt::Actions actions = planner_.Decide(view, now);
    for (const adapt::Cancel& cancel : actions.cancels) Cancel(cancel, now);
    for (const adapt::GiveUp& give_up : actions.give_ups) {
      result_.log.push_back(
          absl::StrCat(now, " give up ", give_up.chunk, " ", static_cast<int>(give_up.why)));
      SetFinal(give_up.chunk, now);
      given_up_.push_back(give_up.chunk);
      Cancel({give_up.chunk, 0}, now);
    }
    for (uint32_t chunk : actions.loaded) {
      result_.log.push_back(absl::StrCat(now, " loaded ", chunk, " ", planner_.loaded_step(chunk)));
      SetFinal(chunk, now);
    }
    for (const adapt::Ask& ask : actions.asks) Enqueue(ask, now);
    CheckWindow(view, actions, now);
  }

  void SetFinal(uint32_t chunk, TimeUs now) {
    if (final_[chunk]) Broken(now, absl::StrCat("chunk ", chunk, " became final twice"));
    final_[chunk] = true;
  }

  void Cancel(const adapt::Cancel& cancel, TimeUs now) {
    std::erase_if(queue_, [&](const Answer& answer) {
      const bool hit =
          answer.ask.chunk == cancel.chunk && answer.ask.last_step >= cancel.first_step;
      if (hit) estimator_.OnDropped(answer.ask.bytes - answer.sent_bytes, now);
      return hit;
    });
  }

  void Enqueue(const adapt::Ask& ask, TimeUs now) {
    const adapt::LoadSpec& spec = config_.spec;
    result_.log.push_back(absl::StrCat(now, " ask ", ask.chunk, " ", ask.first_step, "-",
                                       ask.last_step, " ", ask.bytes, " ",
                                       std::string(ask.reason)));
    if (now >= spec.start_us + spec.slo_us - spec.reserve_us) Broken(now, "asked too late");
    if (final_[ask.chunk]) Broken(now, "asked for a final chunk");
    if (ask.ask_class == adapt::AskClass::kBase) {
      based_.push_back(ask.chunk);
    } else {
      for (uint32_t i = 0; i < spec.chunks.size(); ++i) {
        const bool asked = std::find(based_.begin(), based_.end(), i) != based_.end();
        if (!asked && !final_[i]) Broken(now, "refinement before all bases are asked for");
      }
    }
    estimator_.OnAsked(ask.bytes, now);
    std::bernoulli_distribution fails(config_.failure_rate);
    queue_.push_back({ask, now, now + config_.rtt_us, 0, fails(random_)});
  }

  void CheckWindow(const adapt::LinkView& view, const adapt::Actions& actions, TimeUs now) {
    if (actions.asks.empty() || queue_.size() <= adapt::LoadPlanner::kMinAsksInFlight) return;
    if (planner_.unanswered_bytes() > adapt::LoadPlanner::WindowBytes(view)) {
      Broken(now, "window exceeded");
    }
  }

  void Finish() {
    for (uint32_t i = 0; i < final_.size(); ++i) {
      if (!final_[i]) Broken(result_.finished_us, absl::StrCat("chunk ", i, " was lost"));
      const bool given_up = std::find(given_up_.begin(), given_up_.end(), i) != given_up_.end();
      result_.steps.push_back(given_up ? -1 : planner_.loaded_step(i));
    }
  }

  const SimConfig& config_;
  adapt::LoadPlanner planner_;
  adapt::LinkEstimator estimator_;
  std::mt19937 random_;
  std::vector<bool> final_;
  std::vector<uint32_t> based_, given_up_;
  std::deque<Answer> queue_;
  std::deque<Decoding> decoding_;
  double budget_ = 0;
  uint32_t computed_ = 0;
  bool event_ = false;
  SimResult result_;
};

}  // namespace

LinkModel ConstantLink(double bytes_per_s) {
  return [=](TimeUs) { return bytes_per_s; };
}

LinkModel StepLink(double before, double after, TimeUs at_us) {
  return [=](TimeUs now) { return now < at_us ? before : after; };
}

LinkModel OnOffLink(double bytes_per_s, TimeUs up_us, TimeUs down_us) {
  return [=](TimeUs now) { return now % (up_us + down_us) < up_us ? bytes_per_s : 0.0; };
}

LinkModel RandomLink(uint32_t seed, double low, double high, TimeUs hold_us) {
  return [=](TimeUs now) {
    std::mt19937 random(seed + static_cast<uint32_t>(now / hold_us) * 2654435761u);
    return std::uniform_real_distribution<double>(low, high)(random);
  };
}

LinkModel TraceLink(const std::string& path, TimeUs hold_us) {
  auto values = std::make_shared<std::vector<double>>();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    char* end = nullptr;
    const double mbit_per_s = std::strtod(line.c_str(), &end);
    if (end != line.c_str() && mbit_per_s >= 0) values->push_back(mbit_per_s * 1e6 / 8);
  }
  if (values->empty()) return nullptr;
  return [=](TimeUs now) { return (*values)[static_cast<size_t>(now / hold_us) % values->size()]; };
}

int SimResult::missing() const {
  return static_cast<int>(std::count(steps.begin(), steps.end(), -1));
}

SimResult Simulate(const SimConfig& config) { return SimulatedLoad(config).Run(); }

TimeUs BasesArriveUs(const SimConfig& config, TimeUs limit_us) {
  double missing_bytes = 0;
  for (const adapt::ChunkLadder& ladder : config.spec.chunks) {
    if (!ladder.step_bytes.empty()) missing_bytes += static_cast<double>(ladder.step_bytes[0]);
  }
  const TimeUs start_us = config.spec.start_us;
  for (TimeUs now = start_us + config.rtt_us; now < start_us + limit_us; now += kTickUs) {
    missing_bytes -= BytesIn(config.link, now);
    if (missing_bytes <= 0) return now - start_us;
  }
  return -1;
}

}  // namespace sluice::sim
