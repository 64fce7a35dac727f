#include "tests/sim/referee.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::sim {

using adapt::GiveUpReason;
using adapt::LinkScheduler;
using adapt::LoadPlanner;
using adapt::RecomputeCapability;

bool Referee::Book::computes_beside() const {
  return spec->capability == RecomputeCapability::kBidirectional;
}

bool Referee::Book::Covered() const {
  return std::all_of(chunks.begin(), chunks.end(), [](const Chunk& chunk) {
    return chunk.fate == Fate::kGivenUp || chunk.loaded >= 0;
  });
}

bool Referee::Book::LacksBase(TimeUs now_us) const {
  const bool may_ask = !finished && !lost && flights.size() < LoadPlanner::kMaxAsksInFlight &&
                       now_us < limit_us() - spec->reserve_us && spec->memory_bytes == 0;
  return may_ask && std::any_of(chunks.begin(), chunks.end(), [](const Chunk& chunk) {
           return chunk.fate == Fate::kOpen && chunk.asked < 0;
         });
}

LoadDriver::LoadId Referee::Add(const adapt::LoadSpec& spec) {
  const LoadId id = scheduler_.Add(spec);
  Book& book = books_[id];
  book.spec = &loads_[id - 1].spec;
  book.chunks.resize(spec.chunks.size());
  return id;
}

void Referee::Remove(LoadId id) {
  scheduler_.Remove(id);
  finished_.insert(books_.extract(id));
}

void Referee::Apply(LoadId id, const adapt::Event& event, TimeUs now_us) {
  NoteEvent(books_.at(id), event);
  scheduler_.Apply(id, event, now_us);
}

void Referee::NoteEvent(Book& book, const adapt::Event& event) {
  if (const auto* bytes = std::get_if<adapt::BytesArrived>(&event)) {
    std::erase_if(book.flights, [&](Flight& flight) {
      if (flight.chunk != bytes->chunk || flight.first_step != bytes->first_step) return false;
      flight.missing_bytes -= std::min(flight.missing_bytes, bytes->bytes);
      return flight.missing_bytes == 0;
    });
  } else if (const auto* loaded = std::get_if<adapt::StepLoaded>(&event)) {
    Chunk& chunk = book.chunks[loaded->chunk];
    if (chunk.fate == Fate::kOpen) {
      chunk.loaded = std::max(chunk.loaded, static_cast<int>(loaded->step));
    }
  } else if (const auto* failed = std::get_if<adapt::StepFailed>(&event)) {
    Chunk& chunk = book.chunks[failed->chunk];
    chunk.asked = std::min(chunk.asked, static_cast<int>(failed->step) - 1);
  } else if (const auto* computed = std::get_if<adapt::ChunksComputed>(&event)) {
    book.num_computed = computed->num_chunks;
    book.computing = false;
  } else if (std::holds_alternative<adapt::LinkLost>(event)) {
    book.lost = true;
  }
}

void Referee::Decide(const adapt::Tick& tick, TimeUs now_us) {
  now_us_ = now_us;
  adapt::Tick told = tick;
  if (distort_) distort_(told.link);
  scheduler_.Decide(told, now_us);
  bool asked = false, refined = false;
  for (auto& [id, book] : books_) {
    book.actions = scheduler_.TakeActions(id);
    NoteActions(id, book, book.actions);
    for (const adapt::Ask& ask : book.actions.asks) {
      asked = true;
      refined = refined || ask.ask_class == adapt::AskClass::kRefinement;
    }
  }
  for (const auto& [id, book] : books_) CheckLoad(id, book, told.link);
  CheckLink(told.link, asked, refined);
}

adapt::Actions Referee::TakeActions(LoadId id) {
  return std::exchange(books_.at(id).actions, adapt::Actions{});
}

void Referee::NoteActions(LoadId id, Book& book, const adapt::Actions& actions) {
  if (actions.empty()) return;
  Mix(static_cast<uint64_t>(now_us_));
  Expect(!book.finished, id, "nothing follows the end");
  for (const adapt::Cancel& cancel : actions.cancels) {
    std::erase_if(book.flights, [&](const Flight& flight) {
      return flight.chunk == cancel.chunk && flight.first_step >= cancel.first_step;
    });
    Chunk& chunk = book.chunks[cancel.chunk];
    chunk.asked = std::min(chunk.asked, static_cast<int>(cancel.first_step) - 1);
    Expect(chunk.asked >= chunk.loaded, id, "what is loaded is not taken back");
    Mix(cancel.chunk * 64 + cancel.first_step);
  }
  NoteEnds(id, book, actions);
  NoteAsks(id, book, actions);
  if (actions.compute.has_value()) {
    Expect(book.computes_beside(), id, "only an engine that can computes beside the load");
    Expect(!book.computing, id, "one chunk is computed at a time");
    Expect(actions.compute->chunk == book.num_computed, id, "the computed prefix has no gap");
    const Chunk& chunk = book.chunks[actions.compute->chunk];
    const auto& losses = book.spec->chunks[actions.compute->chunk].step_loss;
    Expect(chunk.fate == Fate::kGivenUp || chunk.loaded < 0 ||
               losses[chunk.loaded] > book.spec->loss_stop,
           id, "what is good is not computed");
    book.computing = true;
    Mix(1000 + actions.compute->chunk);
  }
  book.finished = actions.finished;
}

void Referee::NoteEnds(LoadId id, Book& book, const adapt::Actions& actions) {
  const bool afterwards = book.spec->capability == RecomputeCapability::kSuffix ||
                          book.spec->capability == RecomputeCapability::kAny;
  for (const adapt::GiveUp& give_up : actions.give_ups) {
    Chunk& chunk = book.chunks[give_up.chunk];
    Expect(!chunk.final(), id, "a chunk ends once");
    Expect(chunk.loaded < 0 || afterwards || give_up.why == GiveUpReason::kComputed, id,
           "a covered chunk stays covered");
    Expect(give_up.why != GiveUpReason::kComputed || give_up.chunk < book.num_computed, id,
           "only what the engine has is given up as computed");
    chunk.fate = Fate::kGivenUp;
    Mix(2000 + give_up.chunk * 16 + static_cast<uint64_t>(give_up.why));
  }
  for (const adapt::Close& close : actions.closes) {
    Chunk& chunk = book.chunks[close.chunk];
    Expect(chunk.fate == Fate::kOpen && chunk.loaded >= 0, id, "only what is loaded is closed");
    chunk.fate = Fate::kClosed;
    Mix(3000 + close.chunk);
  }
  for (const uint32_t loaded : actions.loaded) {
    Chunk& chunk = book.chunks[loaded];
    Expect(chunk.fate == Fate::kClosed, id, "a chunk is closed before it is final, and final once");
    Expect(!book.computes_beside() || loaded >= book.num_computed, id,
           "what is computed is not replaced by what is loaded");
    chunk.fate = Fate::kLoaded;
    Mix(4000 + loaded);
  }
}

void Referee::NoteAsks(LoadId id, Book& book, const adapt::Actions& actions) {
  for (const adapt::Ask& ask : actions.asks) {
    Chunk& chunk = book.chunks[ask.chunk];
    const bool base = ask.ask_class == adapt::AskClass::kBase;
    Expect(chunk.fate == Fate::kOpen, id, "only open chunks are asked for");
    Expect(static_cast<int>(ask.first_step) == chunk.asked + 1, id, "no step is asked for twice");
    Expect(base == (ask.first_step == 0), id, "the first step, alone, is the base");
    Expect(!base || ask.last_step == 0, id, "the first step, alone, is the base");
    uint64_t bytes = 0;
    for (uint32_t step = ask.first_step; step <= ask.last_step; ++step) {
      bytes += book.spec->chunks[ask.chunk].step_bytes[step];
    }
    Expect(bytes == ask.bytes, id, "an ask has the bytes of its steps");
    Expect(now_us_ < (base ? book.limit_us() - book.spec->reserve_us : book.slo_end_us()), id,
           "nothing is asked for that would be late");
    chunk.asked = static_cast<int>(ask.last_step);
    book.flights.push_back({ask.chunk, ask.first_step, ask.bytes});
    Mix(5000 + ask.chunk * 64 + ask.first_step * 8 + ask.last_step);
  }
}

void Referee::CheckLoad(LoadId id, const Book& book, const adapt::LinkView& link) {
  const LoadPlanner* planner = scheduler_.planner(id);
  uint64_t held_bytes = 0;
  for (uint32_t i = 0; i < book.chunks.size(); ++i) {
    const Chunk& chunk = book.chunks[i];
    Expect(chunk.fate == Fate::kGivenUp || planner->loaded_step(i) == chunk.loaded, id,
           "a step rises by loading and never falls");
    for (int step = 0; chunk.fate == Fate::kOpen && step <= chunk.asked; ++step) {
      held_bytes += book.spec->chunks[i].step_bytes[step];
    }
  }
  for (const Flight& flight : book.flights) {
    Expect(book.chunks[flight.chunk].fate == Fate::kOpen, id, "what has ended is taken back");
    Expect(flight.first_step == 0 || now_us_ < book.slo_end_us(), id,
           "a refinement that would be late is taken back");
  }
  const uint64_t memory_bytes = book.spec->memory_bytes;
  Expect(memory_bytes == 0 || held_bytes <= memory_bytes, id, "the memory is not exceeded");
  const bool covered = book.Covered();
  const bool all_final = std::all_of(book.chunks.begin(), book.chunks.end(),
                                     [](const Chunk& chunk) { return chunk.final(); });
  Expect(book.finished == all_final, id, "a load is over when every chunk is final");
  Expect(book.finished || now_us_ < book.limit_us(), id, "a load ends by its limit");
  Expect(book.finished || !covered || now_us_ < book.slo_end_us(), id,
         "a covered load ends within its SLO");
  if (!book.computes_beside() || book.finished || book.num_computed == book.chunks.size()) return;
  const Chunk& next = book.chunks[book.num_computed];
  const double spent_us = static_cast<double>(now_us_ - book.spec->start_us);
  const bool backstop =
      spent_us > LoadPlanner::kComputeBackstop * static_cast<double>(book.spec->slo_us);
  if (!covered && next.loaded < 0 && (backstop || link.stalled)) {
    Expect(book.computing, id, "the engine is not idle while a chunk is missing");
  }
}

void Referee::CheckLink(const adapt::LinkView& link, bool asked, bool refined) {
  size_t flights = 0;
  uint64_t missing_bytes = 0;
  for (const auto& [id, book] : books_) {
    flights += book.flights.size();
    for (const Flight& flight : book.flights) missing_bytes += flight.missing_bytes;
    Expect(book.flights.size() <= LoadPlanner::kMaxAsksInFlight, id, "asks in flight are limited");
  }
  const size_t free_asks = link.stalled ? 1 : LinkScheduler::kMinAsksInFlight;
  const uint64_t window_bytes = LinkScheduler::WindowBytes(
      link, refined ? adapt::AskClass::kRefinement : adapt::AskClass::kBase);
  Expect(!asked || flights <= free_asks || missing_bytes <= window_bytes, 0,
         "the window limits what is unanswered");
  Expect(!refined || !link.stalled, 0, "nothing is refined over a link that has stalled");
  Expect(missing_bytes == scheduler_.unanswered_bytes(), 0, "unanswered bytes are counted");
  for (const auto& [id, book] : books_) {
    const bool lacks_base = book.LacksBase(now_us_);
    Expect(!refined || !lacks_base, id, "no refinement while a base can be asked for");
    if (flights > 0 || book.spec->memory_bytes != 0) continue;
    Expect(!lacks_base && !scheduler_.planner(id)->RefinementWish().has_value(), id,
           "the link is not idle while something is wanted");
  }
}

void Referee::CheckOutcomes(const std::vector<LoadOutcome>& outcomes) {
  Expect(books_.empty() && finished_.size() == outcomes.size(), 0, "every load ends");
  for (const auto& [id, book] : finished_) {
    const LoadOutcome& outcome = outcomes[id - 1];
    uint64_t used_bytes = 0;
    bool cut = false;
    for (size_t i = 0; i < book.chunks.size(); ++i) {
      const Chunk& chunk = book.chunks[i];
      // The engine may end a chunk that was good enough when it had begun.
      const bool loaded = chunk.fate == Fate::kLoaded && i >= book.num_computed;
      Expect(outcome.steps[i] == (loaded ? chunk.loaded : LoadOutcome::kComputed), id,
             "a chunk is loaded at its last step or computed");
      for (int step = 0; loaded && step <= chunk.loaded; ++step) {
        used_bytes += book.spec->chunks[i].step_bytes[step];
      }
      cut = cut || !loaded;
      Expect(book.spec->capability != RecomputeCapability::kSuffix || !cut || !loaded, id,
             "nothing is loaded behind a cut");
    }
    Expect(outcome.received_bytes == used_bytes + outcome.wasted_bytes, id,
           "what is received is used or wasted");
  }
}

void Referee::Expect(bool kept, LoadId id, const char* rule) {
  if (kept || faults_.size() >= kMaxFaults) return;
  faults_.push_back(absl::StrCat("load ", id, " at ", now_us_, " us: ", rule));
}

}  // namespace sluice::sim
