#include "tests/codec/test_profiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>
#include <utility>

#include "codec/bytes.h"
#include "codec/elements.h"
#include "codec/transform_coding.h"

namespace sluice::codec {
namespace {

// Rows of an orthogonal matrix: a random reflection of the axes.
std::vector<uint16_t> MakeBasis(size_t n, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> weight(0.5, 2);
  std::vector<double> mirror(n);
  double squares = 0;
  for (double& x : mirror) {
    x = normal(random);
    squares += x * x;
  }
  std::vector<float> weights(n);
  for (float& w : weights) w = static_cast<float>(weight(random));
  std::vector<float> basis(n * n);
  for (size_t row = 0; row < n; ++row) {
    for (size_t c = 0; c < n; ++c) {
      const double element = (row == c ? 1 : 0) - 2 * mirror[row] * mirror[c] / squares;
      basis[row * n + c] = static_cast<float>(element) * weights[c];
    }
  }
  std::vector<uint16_t> bits(basis.size());
  FloatToElements(ElementType::kBf16, basis, std::as_writable_bytes(std::span(bits)));
  return bits;
}

ClassTables TablesOf(int layer) {
  ClassTables tables = BuiltinTables();
  if (layer > 0) {
    tables.base.clear();
    tables.base_bits.clear();
  } else {
    tables.refinement.clear();
    tables.refinement_bits.clear();
  }
  return tables;
}

}  // namespace

ProfileParts MakeProfileParts(const Geometry& geometry, uint32_t model_layers, double step,
                              uint32_t seed) {
  constexpr int kLevels = 3;
  std::mt19937 random(seed);
  ProfileParts parts;
  parts.geometry = geometry;
  for (uint32_t i = 0; i < geometry.planes.size(); ++i) {
    const PlaneSpec& plane = geometry.planes[i];
    parts.steps.push_back(IsQuantisable(plane.element_type) ? step : 0);
    const bool begins = i == 0 || plane.model_layer / model_layers !=
                                      geometry.planes[i - 1].model_layer / model_layers;
    if (begins) parts.groups.push_back({i, 0});
    ++parts.groups.back().num_planes;
  }
  Calibration& calibration = parts.calibration;
  calibration.num_contexts = 1;
  calibration.num_tokens = 1000;
  for (int layer = 0; layer < kLevels; ++layer) {
    calibration.levels.push_back({1.0f + static_cast<float>(layer), 0.1f, 1, 0});
    calibration.tables.push_back(TablesOf(layer));
  }
  for (const GroupSpec& spec : parts.groups) {
    size_t n = 0;
    for (uint32_t i = 0; i < spec.num_planes; ++i) {
      if (parts.steps[spec.first_plane + i] > 0) {
        n += geometry.planes[spec.first_plane + i].channels();
      }
    }
    GroupCalibration& group = calibration.groups.emplace_back();
    group.means.resize(n);
    group.basis = MakeBasis(n, random);
    for (int layer = 0; layer < kLevels; ++layer) {
      group.classes.emplace_back(n, static_cast<uint8_t>(10 + 4 * layer));
    }
  }
  return parts;
}

Profile MakeCalibratedProfile(const Geometry& geometry, uint32_t model_layers, double step,
                              uint32_t seed) {
  absl::StatusOr<Profile> profile = MakeProfileParts(geometry, model_layers, step, seed).Make();
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *std::move(profile);
}

TestChunk MakeSpectralChunk(const Geometry& geometry, uint32_t model_layers, uint32_t start_token,
                            uint32_t num_tokens, uint32_t seed) {
  return MakeSpectralChunk(MakeCalibratedProfile(geometry, model_layers, 0.05, seed), start_token,
                           num_tokens, seed);
}

TestChunk MakeSpectralChunk(Profile profile, uint32_t start_token, uint32_t num_tokens,
                            uint32_t seed) {
  constexpr double kLargest = 14;  // standard deviations, in finest steps
  constexpr double kSmallest = 0.02;
  TestChunk chunk{std::move(profile), start_token, num_tokens, {}};
  for (const PlaneSpec& spec : chunk.profile.geometry().planes) {
    chunk.planes.emplace_back(num_tokens * spec.bytes_per_token(), '\0');
  }
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  RotationCache rotations(chunk.profile, start_token, num_tokens);
  for (size_t g = 0; g < chunk.profile.groups().size(); ++g) {
    const SegmentContext context{&chunk.profile, g, start_token, num_tokens};
    const size_t rows = chunk.profile.coded_channels(g);
    GroupCode code;
    code.layer = chunk.profile.num_levels() - 1;
    code.classes.assign(rows, 1);
    for (size_t row = 0; row < rows; ++row) {
      const double part = static_cast<double>(row) / static_cast<double>(rows);
      const double deviation = kLargest * std::pow(kSmallest / kLargest, part);
      for (uint32_t t = 0; t < num_tokens; ++t) {
        code.values.push_back(static_cast<int16_t>(std::lround(deviation * normal(random))));
      }
    }
    const uint32_t num_planes = context.spec().num_planes;
    std::vector<std::byte*> begins(num_planes);
    std::vector<PlaneRuns> planes;
    size_t next_row = 0;
    for (uint32_t i = 0; i < num_planes; ++i) {
      PlaneCode& plane = code.planes.emplace_back();
      plane.exact = !chunk.profile.is_coded(context.spec().first_plane + i);
      plane.first_row = next_row;
      if (!plane.exact) next_row += context.plane(i).channels();
      begins[i] =
          std::as_writable_bytes(std::span(chunk.planes[context.spec().first_plane + i])).data();
      planes.push_back(DenseRuns(context.plane(i), num_tokens, begins[i]));
    }
    const absl::Status status = SynthesizeGroup(context, code, rotations, planes);
    EXPECT_TRUE(status.ok()) << status;
  }
  return chunk;
}

}  // namespace sluice::codec
