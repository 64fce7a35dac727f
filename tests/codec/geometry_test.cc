#include "codec/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

Geometry TwoLayers() {
  Geometry geometry;
  geometry.rotary_tables.push_back(MakeRotaryTable(10000, 64, RotaryLayout::kHalf));
  for (uint32_t layer = 0; layer < 2; ++layer) {
    PlaneSpec plane{.kind = PlaneKind::kKey, .model_layer = layer, .num_heads = 3, .head_dim = 64};
    plane.rotary_table = 0;
    geometry.planes.push_back(plane);
    plane.kind = PlaneKind::kValue;
    plane.rotary_table = PlaneSpec::kNotRotated;
    geometry.planes.push_back(plane);
  }
  return geometry;
}

TEST(GeometryTest, ShapesThatMustWork) {
  EXPECT_TRUE(TwoLayers().Validate().ok()) << TwoLayers().Validate();
  EXPECT_EQ(TwoLayers().elements_per_token(), 768u);
  EXPECT_EQ(TwoLayers().bytes_per_token(), 1536u);

  Geometry latent;  // MLA: 512 + 64 with the rotated dimensions last
  latent.rotary_tables = {MakeRotaryTable(10000, 64, RotaryLayout::kInterleaved)};
  latent.rotary_tables[0].first_dim = 512;
  latent.planes = {
      {.kind = PlaneKind::kLatent, .num_heads = 1, .head_dim = 576, .rotary_table = 0}};
  EXPECT_TRUE(latent.Validate().ok()) << latent.Validate();

  Geometry opaque;
  opaque.planes = {{.kind = PlaneKind::kOpaque,
                    .element_type = ElementType::kBytes,
                    .num_heads = 1,
                    .head_dim = 4352}};
  EXPECT_TRUE(opaque.Validate().ok()) << opaque.Validate();
  EXPECT_EQ(opaque.bytes_per_token(), 4352u);
}

TEST(GeometryTest, RotaryTableIsRoFormers) {
  const RotaryTable table = MakeRotaryTable(10000, 4, RotaryLayout::kHalf);
  ASSERT_EQ(table.inverse_frequencies.size(), 2u);
  EXPECT_DOUBLE_EQ(table.inverse_frequencies[0], 1);
  EXPECT_DOUBLE_EQ(table.inverse_frequencies[1], 0.01);
}

TEST(GeometryTest, ElementTypes) {
  EXPECT_EQ(ElementBytes(ElementType::kFp32), 4u);
  EXPECT_EQ(ElementBytes(ElementType::kFp8E5M2), 1u);
  EXPECT_EQ(ElementBytes(static_cast<ElementType>(0)), 0u);
  EXPECT_EQ(ElementBytes(static_cast<ElementType>(200)), 0u);
  EXPECT_TRUE(IsQuantisable(ElementType::kBf16));
  EXPECT_FALSE(IsQuantisable(ElementType::kFp8E4M3));
  EXPECT_FALSE(IsQuantisable(ElementType::kBytes));
}

TEST(GeometryTest, ValidateNamesTheField) {
  const auto message = [](auto change) {
    Geometry geometry = TwoLayers();
    change(geometry);
    return std::string(geometry.Validate().message());
  };
  using G = Geometry;
  EXPECT_THAT(message([](G& g) { g.planes.clear(); }), HasSubstr("number of planes"));
  EXPECT_THAT(message([](G& g) { g.planes.resize(1025); }), HasSubstr("number of planes"));
  EXPECT_THAT(message([](G& g) { g.planes[1].kind = PlaneKind{0}; }), HasSubstr("planes[1].kind"));
  EXPECT_THAT(message([](G& g) { g.planes[1].kind = PlaneKind::kKey; }), HasSubstr("out of order"));
  EXPECT_THAT(message([](G& g) { g.planes[2].model_layer = 0; }),
              HasSubstr("planes[2].model_layer"));
  EXPECT_THAT(message([](G& g) { g.planes[0].element_type = ElementType{9}; }),
              HasSubstr("element_type"));
  EXPECT_THAT(message([](G& g) { g.planes[0].element_type = ElementType::kBytes; }),
              HasSubstr("element_type"));
  EXPECT_THAT(message([](G& g) { g.planes[0].num_heads = 0; }), HasSubstr("num_heads"));
  EXPECT_THAT(message([](G& g) { g.planes[0].num_heads = 1025; }), HasSubstr("num_heads"));
  EXPECT_THAT(message([](G& g) { g.planes[1].head_dim = 0; }), HasSubstr("head_dim"));
  EXPECT_THAT(message([](G& g) { g.planes[1].head_dim = (1 << 20) + 1; }), HasSubstr("head_dim"));
  EXPECT_THAT(message([](G& g) { g.planes[1].head_dim = 1 << 20; }), HasSubstr("channels"));
  EXPECT_THAT(message([](G& g) { g.planes[0].head_dim = 63; }), HasSubstr("rotary_table"));
  EXPECT_THAT(message([](G& g) { g.planes[0].rotary_table = 1; }), HasSubstr("rotary_table"));
  EXPECT_THAT(message([](G& g) { g.planes[0].rotary_table = -2; }), HasSubstr("rotary_table"));
  EXPECT_THAT(message([](G& g) { g.planes[1].rotary_table = 0; }), HasSubstr("rotary_table"));
  EXPECT_THAT(message([](G& g) { g.rotary_tables.resize(257); }), HasSubstr("rotary tables"));
  EXPECT_THAT(message([](G& g) { g.rotary_tables[0].layout = RotaryLayout{0}; }),
              HasSubstr("layout"));
  EXPECT_THAT(message([](G& g) { g.rotary_tables[0].inverse_frequencies.clear(); }),
              HasSubstr("pairs"));
  EXPECT_THAT(message([](G& g) { g.rotary_tables[0].first_dim = 1u << 31; }),
              HasSubstr("first_dim"));
  EXPECT_THAT(message([](G& g) {
                g.rotary_tables[0].inverse_frequencies[3] =
                    std::numeric_limits<double>::quiet_NaN();
              }),
              HasSubstr("inverse frequency"));
}

}  // namespace
}  // namespace sluice::codec
