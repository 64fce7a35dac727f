#include "client/profile_geometry.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

using codec::PlaneSpec;
using codec::RotaryTable;

template <typename T>
absl::Status Same(const std::string& field, T of_profile, T wanted) {
  if (of_profile == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the profile is made for another geometry: ", field, " is ", of_profile,
                   " in the profile and ", wanted, " here"));
}

absl::Status SamePlane(const std::string& name, const PlaneSpec& a, const PlaneSpec& b) {
  RETURN_IF_ERROR(
      Same(name + ".kind", int{static_cast<uint8_t>(a.kind)}, int{static_cast<uint8_t>(b.kind)}));
  RETURN_IF_ERROR(Same(name + ".model_layer", a.model_layer, b.model_layer));
  RETURN_IF_ERROR(Same(name + ".num_heads", a.num_heads, b.num_heads));
  RETURN_IF_ERROR(Same(name + ".head_dim", a.head_dim, b.head_dim));
  RETURN_IF_ERROR(Same(name + ".element_type", int{static_cast<uint8_t>(a.element_type)},
                       int{static_cast<uint8_t>(b.element_type)}));
  return Same(name + ".rotary_table", a.rotary_table, b.rotary_table);
}

absl::Status SameTable(const std::string& name, const RotaryTable& a, const RotaryTable& b) {
  RETURN_IF_ERROR(Same(name + ".layout", int{static_cast<uint8_t>(a.layout)},
                       int{static_cast<uint8_t>(b.layout)}));
  RETURN_IF_ERROR(Same(name + ".first_dim", a.first_dim, b.first_dim));
  RETURN_IF_ERROR(Same("number of " + name + ".inverse_frequencies", a.inverse_frequencies.size(),
                       b.inverse_frequencies.size()));
  for (size_t i = 0; i < a.inverse_frequencies.size(); ++i) {
    RETURN_IF_ERROR(Same(absl::StrCat(name, ".inverse_frequencies[", i, "]"),
                         a.inverse_frequencies[i], b.inverse_frequencies[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSameGeometry(const codec::Geometry& of_profile, const codec::Geometry& wanted) {
  RETURN_IF_ERROR(Same("number of planes", of_profile.planes.size(), wanted.planes.size()));
  for (size_t i = 0; i < wanted.planes.size(); ++i) {
    RETURN_IF_ERROR(
        SamePlane(absl::StrCat("planes[", i, "]"), of_profile.planes[i], wanted.planes[i]));
  }
  RETURN_IF_ERROR(Same("number of rotary_tables", of_profile.rotary_tables.size(),
                       wanted.rotary_tables.size()));
  for (size_t i = 0; i < wanted.rotary_tables.size(); ++i) {
    RETURN_IF_ERROR(SameTable(absl::StrCat("rotary_tables[", i, "]"), of_profile.rotary_tables[i],
                              wanted.rotary_tables[i]));
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
