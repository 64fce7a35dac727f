// The golden files of load records: what their parser must accept or refuse for ever.
#pragma once

#include <string>
#include <vector>

#include "client/load_record_file.h"

namespace sluice::client {

struct LoadRecordCase {
  std::string name;      // the file is tests/golden/{accept,reject}/load_record/<name>.bin
  std::string bytes;     // its contents
  std::string expected;  // part of the error's message; empty if the file must be accepted
};

// Every kind of event and action once; no planner decides so.
LoadRecord ExampleLoadRecord();
// The records of two simulated loads over one link, of which one fails in part.
std::vector<LoadRecord> SimulatedLoadRecords();

std::vector<LoadRecordCase> LoadRecordCases();

}  // namespace sluice::client
