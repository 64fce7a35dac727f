// What is in a profile, as text and for machines.
#pragma once

#include "client/cli/json.h"
#include "codec/profile.h"

namespace sluice::cli {

void PrintProfile(const codec::Profile& profile);
Json ToJson(const codec::Profile& profile);

}  // namespace sluice::cli
