#include "tests/codec/level_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codec/bytes.h"

namespace sluice::codec {

RotaryTable HalfTable(uint32_t rotary_dim) {
  return MakeRotaryTable(10000, rotary_dim, RotaryLayout::kHalf);
}

std::vector<GeometryCase> GeometryCases() {
  std::vector<GeometryCase> cases;
  cases.push_back({"3x64", KeysAndValues(2, 3, 64, ElementType::kBf16, HalfTable(64))});
  cases.push_back({"8x128", KeysAndValues(1, 8, 128, ElementType::kBf16, HalfTable(128))});
  cases.push_back({"4x128", KeysAndValues(1, 4, 128, ElementType::kFp16, HalfTable(128))});
  cases.push_back({"8x64", KeysAndValues(1, 8, 64, ElementType::kBf16, HalfTable(64))});
  cases.push_back({"1x256", KeysAndValues(1, 1, 256, ElementType::kFp16, HalfTable(256))});
  cases.push_back(
      {"large_key_mean", KeysAndValues(1, 2, 64, ElementType::kBf16, HalfTable(64)), 20});
  cases.push_back({"partial", KeysAndValues(1, 2, 80, ElementType::kFp16, HalfTable(32))});
  cases.push_back(
      {"interleaved", KeysAndValues(1, 2, 64, ElementType::kBf16,
                                    MakeRotaryTable(5e5, 64, RotaryLayout::kInterleaved))});
  cases.push_back({"not_rotated", KeysAndValues(1, 4, 32)});
  cases.push_back({"fp32", KeysAndValues(1, 2, 33, ElementType::kFp32, HalfTable(32))});

  // Every other model layer turns slower, and the last one not at all.
  Geometry by_layer = KeysAndValues(3, 2, 32, ElementType::kBf16, HalfTable(32));
  by_layer.rotary_tables.push_back(MakeRotaryTable(1e6, 32, RotaryLayout::kHalf));
  by_layer.planes[2].rotary_table = 1;
  by_layer.planes[4].rotary_table = PlaneSpec::kNotRotated;
  cases.push_back({"rotary_by_layer", by_layer});

  Geometry mixed = KeysAndValues(1, 2, 64, ElementType::kBf16, HalfTable(64));
  mixed.rotary_tables.push_back(HalfTable(128));
  mixed.planes.push_back(Plane(PlaneKind::kKey, 1, 1, 128, ElementType::kBf16, 1));
  mixed.planes.push_back(Plane(PlaneKind::kValue, 1, 1, 128));
  cases.push_back({"mixed_heads", mixed});

  Geometry latent;
  latent.rotary_tables.push_back(MakeRotaryTable(10000, 64, RotaryLayout::kInterleaved));
  latent.rotary_tables[0].first_dim = 512;
  latent.planes.push_back(Plane(PlaneKind::kLatent, 0, 1, 576, ElementType::kBf16, 0));
  cases.push_back({"latent_512_64", latent});

  Geometry partly;
  partly.planes.push_back(Plane(PlaneKind::kKey, 0, 2, 64, ElementType::kFp8E4M3));
  partly.planes.push_back(Plane(PlaneKind::kValue, 0, 2, 64));
  partly.planes.push_back(Plane(PlaneKind::kOpaque, 1, 1, 40, ElementType::kBytes));
  cases.push_back({"partly_exact", partly});
  return cases;
}

// Every element is within the reported bound, levels get better, the sinks are exact.
void CheckLossyLevels(const TestChunk& chunk, const EncodedChunk& encoded) {
  const Geometry& geometry = chunk.profile.geometry();
  double last_mean = std::numeric_limits<double>::infinity();
  for (int level = 0; level < chunk.profile.num_levels(); ++level) {
    const LevelReport& report = encoded.levels[level];
    const auto planes = DecodeChunk(chunk.profile, AsBytes(encoded.container), level);
    ASSERT_TRUE(planes.ok()) << planes.status();
    double largest = 0;
    double sum = 0;
    for (size_t i = 0; i < geometry.planes.size(); ++i) {
      const PlaneSpec& spec = geometry.planes[i];
      if (!IsQuantisable(spec.element_type)) {
        EXPECT_EQ((*planes)[i], chunk.planes[i]);
        continue;
      }
      for (size_t k = 0; k < spec.channels() * chunk.num_tokens; ++k) {
        const double error =
            std::abs(ElementAt(spec, (*planes)[i], k) - ElementAt(spec, chunk.planes[i], k));
        const size_t token = k / spec.head_dim % chunk.num_tokens;
        const bool sink = chunk.start_token == 0 && token < chunk.profile.sink_tokens();
        EXPECT_TRUE(!sink || error == 0);
        largest = std::max(largest, error);
        sum += error;
      }
    }
    EXPECT_LE(largest, report.error_bound);
    EXPECT_NEAR(largest, report.max_error, 1e-6 * largest);
    EXPECT_NEAR(sum / static_cast<double>(geometry.elements_per_token() * chunk.num_tokens),
                report.mean_error, 1e-4 * report.mean_error);
    EXPECT_LE(report.mean_error, last_mean);
    last_mean = report.mean_error;
  }
}

}  // namespace sluice::codec
