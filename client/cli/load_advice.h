// Why a recorded load was late, and what would have let it keep its SLO.
//
// Pure functions.
#pragma once

#include <string>

#include "client/load_record.h"

namespace sluice::cli {

// Beyond its SLO, or with chunks that were to be loaded and are neither loaded nor computed.
bool MissedSlo(const client::LoadRecord& record);

// Sentences for people, of a load that missed its SLO, or was in time and its first token was not.
// A link is advised only if the load would have kept its SLO over it, as far as the record tells:
// round trips are added, and chunks are decoded in the time that the load expected.
std::string WhyLate(const client::LoadRecord& record);

}  // namespace sluice::cli
