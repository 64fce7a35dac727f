// Simulated loads and their records: as those of real ones, so that the same programs read them.
//
// One thread at a time.
#pragma once

#include <map>
#include <vector>

#include "client/load_record.h"
#include "sim/simulator.h"

namespace sluice::client {

// Lets what ships decide, and records it.
class RecordingDriver final : public sim::SluiceDriver {
 public:
  RecordingDriver();

  LoadId Add(const adapt::LoadSpec& spec) override;
  // Of all loads so far, in the order of their starts; call once they are over. The records lack
  // what a simulation does not have: load id, namespace, server and time of day.
  std::vector<LoadRecord> TakeRecords();

 private:
  struct Recording {
    adapt::LoadSpec spec;
    EventLog log;
  };
  std::map<LoadId, Recording> recordings_;
};

}  // namespace sluice::client
