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

// Beyond its SLO, or with chunks that were to be loaded and are neither loaded nor computed.
bool MissedSlo(const client::LoadRecord& record);
// "40 of 48 chunks loaded (level 2: 30, level 1: 10), 8 to recompute (late: 8), 12.3 MB in 480 ms".
std::string ResultText(const client::LoadRecord& record);
NamedValues SummaryOf(const client::LoadRecord& record);
Table ChunkTable(const client::LoadRecord& record);
// A sentence: what would have let the load keep its SLO. Empty if it did.
std::string Advice(const client::LoadRecord& record);
// All of the above.
Json ToJson(const client::LoadRecord& record);

}  // namespace sluice::cli
