#include "client/cli/profile_report.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/context_input.h"

namespace sluice::cli {
namespace {

using codec::GroupSpec;
using codec::PlaneSpec;
using codec::Profile;
using codec::RotaryTable;

const char* LayoutName(codec::RotaryLayout layout) {
  return layout == codec::RotaryLayout::kHalf ? "half" : "interleaved";
}

// "3", or "3-7".
std::string Range(uint32_t first, uint32_t last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

std::string ModelLayers(const Profile& profile, const GroupSpec& group) {
  const auto& planes = profile.geometry().planes;
  return Range(planes[group.first_plane].model_layer,
               planes[group.first_plane + group.num_planes - 1].model_layer);
}

// Classes of the rows in the layer of a level, besides the one that is not coded.
size_t NumClasses(const Profile& profile, int layer) {
  return profile.tables(layer).num_classes(layer == 0);
}

// The step of a level as a multiple of the finest one.
double StepRatio(const Profile& profile, int level) {
  double ratio = 1;
  for (int l = level; l + 1 < profile.num_levels(); ++l) ratio *= codec::kStepRatio;
  return ratio;
}

void PrintPlanes(const Profile& profile) {
  Table table({{"plane"},
               {"tensor", Align::kLeft},
               {"heads"},
               {"head_dim"},
               {"type", Align::kLeft},
               {"rotary", Align::kLeft},
               {"finest step"}});
  const auto& planes = profile.geometry().planes;
  for (size_t i = 0; i < planes.size(); ++i) {
    const PlaneSpec& plane = planes[i];
    const bool rotated = plane.rotary_table != PlaneSpec::kNotRotated;
    const double step = profile.step(i);
    table.Add({absl::StrCat(i), client::PlaneTensorName(plane), absl::StrCat(plane.num_heads),
               absl::StrCat(plane.head_dim), std::string(client::PlaneDtype(plane.element_type)),
               rotated ? absl::StrCat("table ", plane.rotary_table) : "-",
               step > 0 ? FormatNumber(step) : "exact"});
  }
  table.Print();
}

void PrintRotaryTables(const Profile& profile) {
  if (profile.geometry().rotary_tables.empty()) return;
  std::printf("\n");
  Table table({{"rotary"},
               {"layout", Align::kLeft},
               {"dimensions", Align::kLeft},
               {"fastest, rad/token"},
               {"slowest, rad/token"}});
  for (const RotaryTable& rotary : profile.geometry().rotary_tables) {
    const auto& angles = rotary.inverse_frequencies;
    const auto [slowest, fastest] = std::ranges::minmax(angles);
    const auto last = static_cast<uint32_t>(rotary.first_dim + 2 * angles.size() - 1);
    table.Add({absl::StrCat(&rotary - profile.geometry().rotary_tables.data()),
               LayoutName(rotary.layout), Range(rotary.first_dim, last), FormatNumber(fastest),
               FormatNumber(slowest)});
  }
  table.Print();
}

void PrintGroups(const Profile& profile) {
  Table table({{"group"},
               {"planes", Align::kLeft},
               {"model layers", Align::kLeft},
               {"channels"},
               {"coded channels"},
               {"transform"}});
  for (size_t g = 0; g < profile.groups().size(); ++g) {
    const GroupSpec& group = profile.groups()[g];
    size_t channels = 0;
    for (uint32_t i = 0; i < group.num_planes; ++i) {
      channels += profile.geometry().planes[group.first_plane + i].channels();
    }
    table.Add({absl::StrCat(g), Range(group.first_plane, group.first_plane + group.num_planes - 1),
               ModelLayers(profile, group), absl::StrCat(channels),
               absl::StrCat(profile.coded_channels(g)),
               profile.calibration() == nullptr
                   ? "-"
                   : FormatBytes(static_cast<double>(profile.basis(g).size_bytes()))});
  }
  table.Print();
}

// What calibration measured on what it had held out; nothing of a built-in profile.
void PrintLevels(const Profile& profile) {
  Table table({{"level"},
               {"step, finest = 1"},
               {"classes"},
               {"bits/element"},
               {"mean error"},
               {"max error"},
               {"predicted KL"}});
  for (int l = 0; l < profile.num_levels(); ++l) {
    std::vector<std::string> cells = {absl::StrCat(l), FormatNumber(StepRatio(profile, l)),
                                      absl::StrCat(NumClasses(profile, l))};
    if (profile.calibration() != nullptr) {
      const codec::LevelQuality& level = profile.calibration()->levels[l];
      cells.push_back(FormatNumber(level.bits_per_element));
      cells.push_back(FormatNumber(level.mean_error));
      cells.push_back(FormatNumber(level.max_error));
      cells.push_back(level.predicted_kl > 0 ? FormatNumber(level.predicted_kl) : "-");
    } else {
      cells.resize(7, "-");
    }
    table.Add(std::move(cells));
  }
  table.Print();
}

std::string KindText(const Profile& profile) {
  const codec::Calibration* calibration = profile.calibration();
  if (calibration == nullptr) return "built-in: means and steps in each chunk, no transform";
  return absl::StrCat("calibrated, learnt from ", FormatCount(calibration->num_contexts, "context"),
                      " of ", FormatCount(calibration->num_tokens, "token"),
                      "; the rest of what was given judged it");
}

Json PlanesToJson(const Profile& profile) {
  Json list = Json::array();
  const auto& planes = profile.geometry().planes;
  for (size_t i = 0; i < planes.size(); ++i) {
    const bool rotated = planes[i].rotary_table != PlaneSpec::kNotRotated;
    list.push_back({{"tensor", client::PlaneTensorName(planes[i])},
                    {"model_layer", planes[i].model_layer},
                    {"num_heads", planes[i].num_heads},
                    {"head_dim", planes[i].head_dim},
                    {"element_type", std::string(client::PlaneDtype(planes[i].element_type))},
                    {"rotary_table", rotated ? Json(planes[i].rotary_table) : Json()},
                    {"finest_step", profile.step(i)}});
  }
  return list;
}

}  // namespace

void PrintProfile(const Profile& profile, bool with_planes) {
  const codec::Geometry& geometry = profile.geometry();
  PrintPairs(
      {{"profile", codec::DigestHex(profile.id())},
       {"size", FormatBytes(static_cast<double>(profile.bytes().size()))},
       {"kind", KindText(profile)},
       {"geometry", absl::StrCat(FormatCount(geometry.planes.size(), "plane"), ", ",
                                 FormatCount(geometry.elements_per_token(), "element"), " and ",
                                 FormatBytes(geometry.bytes_per_token()), " a token")},
       {"levels", absl::StrCat(profile.num_levels(), " lossy")},
       {"exact",
        absl::StrCat("the first ", FormatCount(profile.sink_tokens(), "token"), " of a context")}});
  std::printf("\n");
  PrintLevels(profile);
  std::printf("\n");
  PrintGroups(profile);
  if (!with_planes) return;
  std::printf("\n");
  PrintPlanes(profile);
  PrintRotaryTables(profile);
}

Json ToJson(const Profile& profile) {
  const codec::Geometry& geometry = profile.geometry();
  Json json = {{"id", codec::DigestHex(profile.id())},
               {"bytes", profile.bytes().size()},
               {"kind", profile.calibration() == nullptr ? "built-in" : "calibrated"},
               {"bytes_per_token", geometry.bytes_per_token()},
               {"elements_per_token", geometry.elements_per_token()},
               {"sink_tokens", profile.sink_tokens()}};
  json["planes"] = PlanesToJson(profile);
  Json& tables = json["rotary_tables"] = Json::array();
  for (const RotaryTable& rotary : geometry.rotary_tables) {
    tables.push_back({{"layout", LayoutName(rotary.layout)},
                      {"first_dim", rotary.first_dim},
                      {"inverse_frequencies", rotary.inverse_frequencies}});
  }
  Json& groups = json["groups"] = Json::array();
  for (size_t g = 0; g < profile.groups().size(); ++g) {
    const GroupSpec& group = profile.groups()[g];
    groups.push_back({{"first_plane", group.first_plane},
                      {"num_planes", group.num_planes},
                      {"coded_channels", profile.coded_channels(g)}});
  }
  const codec::Calibration* calibration = profile.calibration();
  Json& levels = json["levels"] = Json::array();
  for (int l = 0; l < profile.num_levels(); ++l) {
    Json level = {
        {"level", l}, {"step_ratio", StepRatio(profile, l)}, {"classes", NumClasses(profile, l)}};
    if (calibration != nullptr) {
      const codec::LevelQuality& quality = calibration->levels[l];
      level["bits_per_element"] = quality.bits_per_element;
      level["mean_error"] = quality.mean_error;
      level["max_error"] = quality.max_error;
      level["predicted_kl"] = quality.predicted_kl;
    }
    levels.push_back(level);
  }
  if (calibration != nullptr) {
    json["contexts"] = calibration->num_contexts;
    json["tokens"] = calibration->num_tokens;
  }
  return json;
}

}  // namespace sluice::cli
