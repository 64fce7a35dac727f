// Drives loads by the code that ships and notes which of its rules it breaks.
//
// It keeps books of its own, from the events and the actions alone, and compares after every
// decision. For Simulate: as its driver. One simulation.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/simulator.h"

namespace sluice::sim {

class Referee : public LoadDriver {
 public:
  static constexpr size_t kMaxFaults = 5;
  // Changes what is told of the link; may be empty.
  using Distortion = std::function<void(adapt::LinkView&)>;

  // The loads must be in the order of their starts.
  explicit Referee(const std::vector<SimLoad>& loads, Distortion distort = nullptr)
      : loads_(loads), distort_(std::move(distort)) {}

  LoadId Add(const adapt::LoadSpec& spec) override;
  void Remove(LoadId id) override;
  void Apply(LoadId id, const adapt::Event& event, TimeUs now_us) override;
  void Decide(const adapt::Tick& tick, TimeUs now_us) override;
  adapt::Actions TakeActions(LoadId id) override;
  TimeUs WakeUs(TimeUs now_us) const override { return scheduler_.WakeUs(now_us); }

  // What can only be seen in the end.
  void CheckOutcomes(const std::vector<LoadOutcome>& outcomes);
  // The first ones; empty if every rule was kept.
  const std::vector<std::string>& faults() const { return faults_; }
  // Of all actions in their order.
  uint64_t digest() const { return digest_; }

 private:
  enum class Fate { kOpen, kClosed, kLoaded, kGivenUp };
  struct Chunk {
    Fate fate = Fate::kOpen;
    int asked = -1;
    int loaded = -1;
    bool final() const { return fate == Fate::kLoaded || fate == Fate::kGivenUp; }
  };
  struct Flight {
    uint32_t chunk = 0;
    uint32_t first_step = 0;
    uint64_t missing_bytes = 0;
  };
  struct Book {
    const adapt::LoadSpec* spec = nullptr;
    std::vector<Chunk> chunks;
    std::vector<Flight> flights;
    uint32_t num_computed = 0;
    bool computing = false;
    bool lost = false;
    bool finished = false;
    adapt::Actions actions;

    bool computes_beside() const;
    TimeUs slo_end_us() const { return spec->start_us + spec->slo_us - spec->reserve_us; }
    TimeUs limit_us() const { return spec->start_us + std::max(spec->slo_us, spec->limit_us); }
    bool Covered() const;
    // A base could be asked for now.
    bool LacksBase(TimeUs now_us) const;
  };

  void Expect(bool kept, LoadId id, const char* rule);
  void NoteEvent(Book& book, const adapt::Event& event);
  void NoteEnds(LoadId id, Book& book, const adapt::Actions& actions);
  void NoteAsks(LoadId id, Book& book, const adapt::Actions& actions);
  void NoteActions(LoadId id, Book& book, const adapt::Actions& actions);
  void CheckLoad(LoadId id, const Book& book, const adapt::LinkView& link);
  void CheckLink(const adapt::LinkView& link, bool asked, bool refined);
  void Mix(uint64_t value) { digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15 + (digest_ >> 29); }

  const std::vector<SimLoad>& loads_;
  const Distortion distort_;
  adapt::LinkScheduler scheduler_;
  std::map<LoadId, Book> books_;     // of running loads
  std::map<LoadId, Book> finished_;  // of the others
  TimeUs now_us_ = 0;
  std::vector<std::string> faults_;
  uint64_t digest_ = 0;
};

}  // namespace sluice::sim
