// The geometries that every profile must work for, and what every lossy level must keep.
#pragma once

#include <string>
#include <vector>

#include "tests/codec/test_chunks.h"

namespace sluice::codec {

RotaryTable HalfTable(uint32_t rotary_dim);

struct GeometryCase {
  std::string name;
  Geometry geometry;
  double mean = 1;  // see MakeChunk
};

std::vector<GeometryCase> GeometryCases();

// Every element is within the reported bound, levels get better, the sinks are exact.
void CheckLossyLevels(const TestChunk& chunk, const EncodedChunk& encoded);

}  // namespace sluice::codec
