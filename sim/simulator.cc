#include "sim/simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>
#include <random>
#include <utility>

namespace sluice::sim {
namespace {

using adapt::Actions;
using adapt::AskClass;

constexpr TimeUs kQuantumUs = 1000;  // a frame holds what arrives in that time

enum class Kind { kStart, kAskAtServer, kServed, kArrived, kDecoded, kComputed, kLinkLost };

struct Happening {
  TimeUs at_us = 0;
  uint64_t order = 0;  // of equal times, the first to be foreseen
  Kind kind = Kind::kStart;
  size_t index = 0;  // of a load, an ask or a job
  uint64_t bytes = 0;

  bool operator>(const Happening& other) const {
    return std::pair(at_us, order) > std::pair(other.at_us, other.order);
  }
};

struct AskState {
  size_t load = 0;
  adapt::Ask ask;
  TimeUs asked_us = 0;
  TimeUs first_byte_us = -1;
  TimeUs cancelled_us = -1;
  uint64_t sent = 0, arrived = 0;
  TimeUs at_server_us = 0, first_sent_us = -1;
};

struct LoadState {
  const SimLoad* load = nullptr;
  LoadDriver::LoadId id = 0;
  bool running = false, over = false;
  std::vector<int> ready, decoded;  // steps per chunk
  std::vector<bool> closed, computed;
  uint32_t num_computed = 0;  // a prefix, told to the driver
  LoadOutcome outcome;
};

struct GpuJob {
  size_t load = 0;
  uint32_t chunk = 0;
  TimeUs since_us = 0;
};

class Simulation {
 public:
  Simulation(const World& world, const std::vector<SimLoad>& loads, LoadDriver& driver,
             Memory& memory, const Watcher& watcher)
      : world_(world),
        driver_(driver),
        memory_(memory),
        watcher_(watcher),
        random_(world.seed),
        loads_(loads.size()) {
    for (size_t i = 0; i < loads.size(); ++i) {
      LoadState& state = loads_[i];
      const size_t chunks = loads[i].spec.chunks.size();
      state.load = &loads[i];
      state.ready.assign(chunks, -1);
      state.decoded.assign(chunks, -1);
      state.closed.assign(chunks, false);
      state.computed.assign(chunks, false);
      Foresee(loads[i].spec.start_us, Kind::kStart, i);
    }
    if (world.link_lost_us >= 0) Foresee(world.link_lost_us, Kind::kLinkLost, 0);
    num_open_ = loads.size();
  }

  std::vector<LoadOutcome> Run() {
    while (num_open_ > 0 && (!queue_.empty() || num_running_ > 0)) {
      const bool tick = num_running_ > 0 && (queue_.empty() || next_tick_us_ < queue_.top().at_us);
      now_ = std::max(now_, tick ? next_tick_us_ : queue_.top().at_us);
      dirty_ = tick;
      while (!queue_.empty() && queue_.top().at_us <= now_) {
        const Happening happening = queue_.top();
        queue_.pop();
        Handle(happening);
      }
      if (dirty_ && num_running_ > 0) Decide();
    }
    std::vector<LoadOutcome> outcomes;
    for (LoadState& load : loads_) outcomes.push_back(std::move(load.outcome));
    return outcomes;
  }

 private:
  void Foresee(TimeUs at_us, Kind kind, size_t index, uint64_t bytes = 0) {
    if (at_us < kNever) queue_.push({at_us, order_++, kind, index, bytes});
  }

  void Handle(const Happening& happening) {
    switch (happening.kind) {
      case Kind::kStart:
        Start(loads_[happening.index]);
        break;
      case Kind::kAskAtServer: {
        AskState& ask = asks_[happening.index];
        ask.at_server_us = now_;
        waiting_[ask.ask.ask_class == AskClass::kBase ? 0 : 1].push_back(happening.index);
        Serve();
        break;
      }
      case Kind::kServed:
        serving_ = false;
        Serve();
        break;
      case Kind::kArrived:
        Arrive(happening.index, happening.bytes);
        break;
      case Kind::kDecoded:
        Decoded();
        break;
      case Kind::kComputed:
        if (happening.index == job_) Computed();
        break;
      case Kind::kLinkLost:
        LoseLink();
        break;
    }
  }

  void Start(LoadState& load) {
    load.running = true;
    ++num_running_;
    load.id = driver_.Add(load.load->spec);
    dirty_ = true;
  }

  // The server sends the next frame.
  void Serve() {
    if (serving_ || lost_) return;
    for (std::deque<size_t>& queue : waiting_) {
      while (!queue.empty()) {
        AskState& ask = asks_[queue.front()];
        const bool cancelled =
            ask.cancelled_us >= 0 && ask.cancelled_us + world_.rtt_us / 2 <= now_;
        const uint64_t missing = ask.ask.bytes - ask.sent;
        if (!cancelled && (missing > 0 || ask.first_sent_us < 0)) {
          Send(queue.front(), missing);
          return;
        }
        queue.pop_front();
      }
    }
  }

  void Send(size_t index, uint64_t missing) {
    AskState& ask = asks_[index];
    uint64_t bytes = missing;
    TimeUs end_us = world_.link.TimeOf(static_cast<double>(missing), now_);
    if (end_us > now_ + kQuantumUs) {
      const double frame = std::floor(world_.link.Amount(now_, now_ + kQuantumUs));
      bytes = std::min(missing, std::max<uint64_t>(static_cast<uint64_t>(frame), 1));
      end_us = world_.link.TimeOf(static_cast<double>(bytes), now_);
    }
    if (ask.first_sent_us < 0) ask.first_sent_us = now_;
    ask.sent += bytes;
    serving_ = true;
    Foresee(end_us, Kind::kServed, index);
    if (end_us < kNever) Foresee(end_us + world_.rtt_us / 2, Kind::kArrived, index, bytes);
  }

  void Arrive(size_t index, uint64_t bytes) {
    AskState& ask = asks_[index];
    LoadState& load = loads_[ask.load];
    if (lost_) return;
    load.outcome.received_bytes += bytes;
    ask.arrived += bytes;
    if (load.over) load.outcome.wasted_bytes += bytes;
    if (ask.cancelled_us >= 0 || load.over) return;
    if (ask.first_byte_us < 0) {
      ask.first_byte_us = now_;
      memory_.link.OnFirstByte(now_ - ask.asked_us, ask.first_sent_us - ask.at_server_us);
    }
    memory_.link.OnBytes(bytes, now_);
    const bool last = ask.arrived >= ask.ask.bytes;
    if (watcher_.arrived) watcher_.arrived(ask.load, now_, ask.ask.chunk, bytes, last);
    driver_.Apply(load.id, adapt::BytesArrived{ask.ask.chunk, ask.ask.first_step, bytes}, now_);
    if (!last) return;
    dirty_ = true;
    std::erase(live_, index);
    if (world_.failure_rate > 0 && std::bernoulli_distribution(world_.failure_rate)(random_)) {
      driver_.Apply(load.id, adapt::StepFailed{ask.ask.chunk, ask.ask.first_step, true}, now_);
      Forget(ask.load, ask.ask.chunk, static_cast<int>(ask.ask.first_step));
      return;
    }
    int& ready = load.ready[ask.ask.chunk];
    ready = std::max(ready, static_cast<int>(ask.ask.last_step));
    const std::pair<size_t, uint32_t> job(ask.load, ask.ask.chunk);
    // One that waits takes all that is ready by then; the one at work does not.
    const bool waits = std::find(decoder_.begin() + (decoder_.empty() ? 0 : 1), decoder_.end(),
                                 job) != decoder_.end();
    if (waits) return;
    decoder_.push_back(job);
    if (decoder_.size() == 1) StartDecode();
  }

  // The chunk's steps from `first_step` on are not there any more, nor asked for.
  void Forget(size_t load_index, uint32_t chunk, int first_step) {
    for (const size_t index : std::vector<size_t>(live_)) {
      AskState& ask = asks_[index];
      if (ask.load != load_index || ask.ask.chunk != chunk) continue;
      if (static_cast<int>(ask.ask.last_step) < first_step) continue;
      ask.cancelled_us = now_;
      memory_.link.OnDropped(ask.ask.bytes - ask.arrived, now_);
      std::erase(live_, index);
    }
    int& ready = loads_[load_index].ready[chunk];
    ready = std::min(ready, std::max(first_step - 1, loads_[load_index].decoded[chunk]));
  }

  void StartDecode() {
    while (!decoder_.empty()) {
      const auto [index, chunk] = decoder_.front();
      LoadState& load = loads_[index];
      decoding_step_ = load.ready[chunk];
      if (!load.over && !load.closed[chunk] && decoding_step_ > load.decoded[chunk]) {
        Foresee(now_ + load.load->decode_us[chunk], Kind::kDecoded, index);
        return;
      }
      decoder_.pop_front();
    }
  }

  void Decoded() {
    const auto [index, chunk] = decoder_.front();
    decoder_.pop_front();
    LoadState& load = loads_[index];
    if (!load.over && !load.closed[chunk] && decoding_step_ <= load.ready[chunk]) {
      load.decoded[chunk] = std::max(load.decoded[chunk], decoding_step_);
      driver_.Apply(load.id, adapt::StepLoaded{chunk, static_cast<uint32_t>(decoding_step_)}, now_);
      if (watcher_.decoded) watcher_.decoded(index, now_, chunk, decoding_step_);
      dirty_ = true;
    }
    StartDecode();
  }

  void StartGpu() {
    if (gpu_busy_ || gpu_.empty()) return;
    GpuJob& job = gpu_.front();
    job.since_us = now_;
    gpu_busy_ = true;
    const double work = static_cast<double>(loads_[job.load].load->work_us[job.chunk]) * 1e-6;
    Foresee(world_.gpu.TimeOf(work, now_), Kind::kComputed, ++job_);
  }

  void Computed() {
    const GpuJob job = gpu_.front();
    LoadState& load = loads_[job.load];
    StopGpu(job);
    gpu_.pop_front();
    load.computed[job.chunk] = true;
    const uint32_t tokens = load.load->spec.chunks[job.chunk].num_tokens;
    memory_.cost.OnMeasured(tokens, job.chunk * load.load->unit_tokens, now_ - job.since_us);
    while (load.num_computed < load.computed.size() && load.computed[load.num_computed]) {
      ++load.num_computed;
    }
    if (watcher_.computed) watcher_.computed(job.load, now_, job.chunk);
    driver_.Apply(load.id, adapt::ChunksComputed{load.num_computed}, now_);
    dirty_ = true;
    StartGpu();
  }

  void StopGpu(const GpuJob& job) {
    gpu_busy_ = false;
    loads_[job.load].outcome.gpu_us += std::llround(world_.gpu.Amount(job.since_us, now_) * 1e6);
  }

  void LoseLink() {
    lost_ = true;
    for (const size_t index : live_) {
      const AskState& ask = asks_[index];
      memory_.link.OnDropped(ask.ask.bytes - ask.arrived, now_);
    }
    live_.clear();
    for (LoadState& load : loads_) {
      if (load.running) driver_.Apply(load.id, adapt::LinkLost{false}, now_);
    }
    dirty_ = true;
  }

  void Decide() {
    const adapt::Tick tick{memory_.link.View(now_),
                           {memory_.cost.scale(), memory_.cost.high_scale()}};
    if (watcher_.decide) watcher_.decide(now_, tick);
    driver_.Decide(tick, now_);
    for (size_t i = 0; i < loads_.size(); ++i) {
      if (!loads_[i].running) continue;
      ++loads_[i].outcome.decisions;
      const Actions actions = driver_.TakeActions(loads_[i].id);
      if (!actions.empty()) Carry(i, actions);
    }
    next_tick_us_ = std::max(driver_.WakeUs(now_), now_ + 1);
  }

  void Carry(size_t index, const Actions& actions) {
    LoadState& load = loads_[index];
    if (watcher_.actions) watcher_.actions(index, now_, actions);
    for (const adapt::Cancel& cancel : actions.cancels) {
      Forget(index, cancel.chunk, static_cast<int>(cancel.first_step));
    }
    for (const adapt::GiveUp& give_up : actions.give_ups) {
      Forget(index, give_up.chunk, 0);
      load.closed[give_up.chunk] = true;
      // What a policy does not use counts neither for coverage nor for quality.
      load.decoded[give_up.chunk] = -1;
    }
    for (const adapt::Close& close : actions.closes) {
      Forget(index, close.chunk, 0);
      load.closed[close.chunk] = true;
    }
    for (const adapt::Ask& ask : actions.asks) {
      memory_.link.OnAsked(ask.bytes, now_);
      live_.push_back(asks_.size());
      Foresee(now_ + world_.rtt_us / 2, Kind::kAskAtServer, asks_.size());
      asks_.push_back({.load = index, .ask = ask, .asked_us = now_});
    }
    if (actions.compute.has_value()) {
      gpu_.push_back({index, actions.compute->chunk, now_});
      StartGpu();
    }
    if (actions.finished) End(index);
  }

  // What no one has by now is computed one after the other; then the first token follows.
  void End(size_t index) {
    LoadState& load = loads_[index];
    load.running = false;
    load.over = true;
    --num_running_;
    --num_open_;
    for (const size_t i : std::vector<size_t>(live_)) {
      if (asks_[i].load == index) Forget(index, asks_[i].ask.chunk, 0);
    }
    if (gpu_busy_ && gpu_.front().load == index) {
      StopGpu(gpu_.front());
      ++job_;
    }
    std::erase_if(gpu_, [&](const GpuJob& job) { return job.load == index; });
    StartGpu();
    driver_.Remove(load.id);

    LoadOutcome& outcome = load.outcome;
    double work_us = 0, loss = 0, tokens = 0, used = 0;
    for (size_t i = 0; i < load.decoded.size(); ++i) {
      const adapt::ChunkLadder& ladder = load.load->spec.chunks[i];
      tokens += ladder.num_tokens;
      const bool loaded = !load.computed[i] && load.decoded[i] >= 0;
      outcome.steps.push_back(loaded ? load.decoded[i] : LoadOutcome::kComputed);
      if (!loaded && !load.computed[i]) work_us += static_cast<double>(load.load->work_us[i]);
      if (!loaded) continue;
      loss += ladder.step_loss[load.decoded[i]] * ladder.num_tokens;
      for (int step = 0; step <= load.decoded[i]; ++step) {
        used += static_cast<double>(ladder.step_bytes[step]);
      }
    }
    const TimeUs end_us = ComputeRest(load);
    outcome.gpu_us += static_cast<TimeUs>(work_us);
    outcome.ttft_us = end_us + world_.first_token_us - load.load->spec.start_us;
    outcome.loss = tokens > 0 ? loss / tokens : 0;
    const double received = static_cast<double>(outcome.received_bytes);
    outcome.wasted_bytes = static_cast<uint64_t>(std::max(received - used, 0.0));
  }

  // Of what is neither loaded nor computed; returns the end. What it took is known from then on.
  TimeUs ComputeRest(const LoadState& load) {
    TimeUs at_us = now_;
    for (size_t i = 0; i < load.decoded.size(); ++i) {
      if (load.computed[i] || load.decoded[i] >= 0) continue;
      const TimeUs since_us = at_us;
      at_us = world_.gpu.TimeOf(static_cast<double>(load.load->work_us[i]) * 1e-6, at_us);
      memory_.cost.OnMeasured(load.load->spec.chunks[i].num_tokens,
                              static_cast<uint32_t>(i) * load.load->unit_tokens, at_us - since_us);
    }
    return at_us;
  }

  const World& world_;
  LoadDriver& driver_;
  Memory& memory_;
  const Watcher& watcher_;
  std::mt19937_64 random_;
  std::vector<LoadState> loads_;
  size_t num_open_ = 0, num_running_ = 0;

  TimeUs now_ = 0, next_tick_us_ = 0;
  bool dirty_ = false;  // the driver is to decide
  uint64_t order_ = 0;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue_;

  std::vector<AskState> asks_;
  std::vector<size_t> live_;  // asks of which bytes are missing
  std::deque<size_t> waiting_[2];
  bool serving_ = false, lost_ = false;

  std::deque<std::pair<size_t, uint32_t>> decoder_;  // the first is at work
  int decoding_step_ = 0;

  std::deque<GpuJob> gpu_;  // the first is at work if gpu_busy_
  bool gpu_busy_ = false;
  size_t job_ = 0;
};

}  // namespace

SimLoad MakeLoad(const LoadModel& model, uint32_t tokens, TimeUs start_us, TimeUs slo_us,
                 const adapt::PrefillCost& cost) {
  SimLoad load;
  load.spec = model.Spec(tokens, start_us, slo_us, cost);
  load.unit_tokens = model.unit_tokens;
  for (uint32_t unit = 0; unit < model.num_units(tokens); ++unit) {
    const uint32_t unit_size = model.TokensOf(unit, tokens);
    load.decode_us.push_back(model.DecodeUs(unit_size));
    load.work_us.push_back(model.PrefillUs(unit_size, unit * model.unit_tokens));
  }
  return load;
}

std::vector<LoadOutcome> Simulate(const World& world, const std::vector<SimLoad>& loads,
                                  LoadDriver& driver, Memory& memory, const Watcher& watcher) {
  return Simulation(world, loads, driver, memory, watcher).Run();
}

}  // namespace sluice::sim
