// What is in a profile, as text and for machines.
#pragma once

#include "client/cli/json.h"
#include "codec/profile.h"

namespace sluice::cli {

// Levels and groups; planes and rotary tables, of which there may be many, if they are wanted.
void PrintProfile(const codec::Profile& profile, bool with_planes);
Json ToJson(const codec::Profile& profile);

}  // namespace sluice::cli
