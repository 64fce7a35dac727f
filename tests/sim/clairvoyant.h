// What a loader could reach at best if it knew the link and the GPU beforehand.
#pragma once

#include "sim/simulator.h"

namespace sluice::sim {

struct Bound {
  bool feasible = false;  // within the SLO
  TimeUs ttft_us = 0;     // of the loads that cannot be: the least possible
  double loss = 0;        // of the others: the least possible, mean over tokens
};

// `load` must be made by `model`. Levels cost what they do alone, without embedding; bytes take one
// round trip; bases are decoded one after the other, refinements at no cost.
Bound ClairvoyantBidirectional(const World& world, const LoadModel& model, const SimLoad& load);
Bound ClairvoyantLoadOnly(const World& world, const LoadModel& model, const SimLoad& load);
// One cut: what lies before it is loaded, then the rest is computed.
Bound ClairvoyantSuffix(const World& world, const LoadModel& model, const SimLoad& load);
// The other way round: what lies behind the cut is loaded, then what is before it is computed.
Bound ClairvoyantAny(const World& world, const LoadModel& model, const SimLoad& load);

}  // namespace sluice::sim
