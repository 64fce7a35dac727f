// What a record says to people: a summary, a table of chunks, and what was in the way.
//
// Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/cli/json.h"
#include "client/cli/table.h"
#include "client/load_record.h"

namespace sluice::cli {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

// "40 of 48 chunks loaded (level 2: 30, level 1: 10), 8 to recompute (late: 8), 12.3 MB in 480 ms".
std::string ResultText(const client::LoadRecord& record);
NamedValues SummaryOf(const client::LoadRecord& record);
Table ChunkTable(const client::LoadRecord& record);
// What would have let the load keep its SLO (load_advice.h). Empty if it did.
std::string Advice(const client::LoadRecord& record);
// All of the above.
Json ToJson(const client::LoadRecord& record);

}  // namespace sluice::cli
