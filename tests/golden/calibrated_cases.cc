#include "tests/golden/calibrated_cases.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "codec/bytes.h"
#include "codec/decoder.h"
#include "codec/elements.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr int kLevels = 3;
constexpr size_t kDim = 2;
constexpr size_t kChannels = 2 * kDim;  // of a group
constexpr size_t kNumPlanes = 4;
constexpr uint32_t kTokens = 40;
constexpr uint32_t kStartToken = 256;

// Offsets in the bytes of the example profile.
constexpr size_t kKindAt = 6;
constexpr size_t kPlanesAt = 33;
constexpr size_t kPlaneBytes = 26;
constexpr size_t kStepInPlane = 18;
constexpr size_t kNumGroupsAt = kPlanesAt + kNumPlanes * kPlaneBytes;
constexpr size_t kGroupsAt = kNumGroupsAt + 4;
constexpr size_t kNumLevelsAt = kGroupsAt + 2 * 8;
constexpr size_t kSinksAt = kNumLevelsAt + 1;
constexpr size_t kSectionsAt = kSinksAt + 4;
constexpr size_t kLevelsAt = kSectionsAt + 4 + 12;
constexpr size_t kBaseTablesAt = kLevelsAt + kLevels * 16;
constexpr size_t kBaseTableBytes = 2 * kBaseSymbols;
constexpr size_t kRefinementTableBytes = size_t{2} * kContexts * kRefinementSymbols;
constexpr size_t kLayer1TablesAt = kBaseTablesAt + 1 + 2 * kBaseTableBytes;
constexpr size_t kLayer2TablesAt = kLayer1TablesAt + 1 + 2 * kRefinementTableBytes;
constexpr size_t kGroup0At = kLayer2TablesAt + 1 + 2 * kRefinementTableBytes;
constexpr size_t kMeans0At = kGroup0At + kLevels * kChannels;
constexpr size_t kPadding0At = kMeans0At + 4 * kChannels;
constexpr size_t kBasis0At = (kPadding0At + 63) / 64 * 64;
constexpr size_t kGroup1At = kBasis0At + 2 * kChannels * kChannels;
constexpr size_t kMeans1At = kGroup1At + kLevels * kChannels;
constexpr size_t kBasis1At = (kMeans1At + 4 * kChannels + 63) / 64 * 64;
static_assert(kPadding0At < kBasis0At);

constexpr size_t StepAt(size_t plane) { return kPlanesAt + plane * kPlaneBytes + kStepInPlane; }

template <typename T>
void Set(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

Geometry ExampleGeometry() {
  Geometry geometry;
  geometry.rotary_tables.push_back({.layout = RotaryLayout::kHalf, .inverse_frequencies = {0.5}});
  for (uint32_t layer = 0; layer < 2; ++layer) {
    geometry.planes.push_back({PlaneKind::kKey, ElementType::kBf16, layer, 1, kDim, 0});
    geometry.planes.push_back(
        {PlaneKind::kValue, ElementType::kBf16, layer, 1, kDim, PlaneSpec::kNotRotated});
  }
  return geometry;
}

// An orthogonal matrix whose elements are multiples of 1/2, so exact in any arithmetic.
std::vector<uint16_t> ExampleBasis() {
  std::vector<float> basis(kChannels * kChannels, -0.5f);
  for (size_t i = 0; i < kChannels; ++i) basis[i * kChannels + i] = 0.5f;
  std::vector<uint16_t> bits(basis.size());
  FloatToElements(ElementType::kBf16, basis, std::as_writable_bytes(std::span(bits)));
  return bits;
}

// Narrow and wide.
ClassTables ExampleTables(bool base_layer) {
  if (base_layer) {
    const std::vector<BaseFrequencies> classes = {
        {1, 1, 1, 1, 1, 4, 500, 3064, 500, 4, 1, 1, 1, 1, 1, 14},
        {64, 96, 160, 256, 384, 512, 576, 512, 512, 384, 256, 160, 96, 64, 32, 32}};
    return MakeBaseTables(classes, std::vector<CentroidShift>(classes.size()));
  }
  std::vector<RefinementFrequencies> classes(2);
  classes[0].fill({96, 3904, 96});
  classes[1].fill({1365, 1366, 1365});
  return MakeRefinementTables(classes);
}

// A sum of uniform numbers, as random as that of any library but the same from all.
float NearlyNormal(std::mt19937& random) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(random() >> 16) / 65536.0f - 0.5f;
  return sum;
}

template <typename T>
std::string Changed(std::string bytes, size_t offset, T value) {
  Set(bytes, offset, value);
  SealProfile(bytes);
  return bytes;
}

// Bytes [offset, offset + erased) replaced.
std::string Replaced(std::string bytes, size_t offset, size_t erased, const std::string& by) {
  bytes.replace(offset, erased, by);
  SealProfile(bytes);
  return bytes;
}

// Adds a profile to `cases`.
using Add = std::function<void(const std::string&, std::string, const char*)>;

void AddFrameCases(const std::string& good, const Add& add) {
  const size_t end = good.size() - sizeof(uint64_t);
  add("calibrated_kind_unknown", Changed<uint16_t>(good, kKindAt, 2), "profile kind 2");
  add("calibrated_kind_builtin", Changed<uint16_t>(good, kKindAt, 0), "bytes too many");
  add("calibrated_trailing", Replaced(good, end, 0, "x"), "profile has 1 bytes too many");
  add("calibrated_truncated_levels", Replaced(good, kLevelsAt + 20, end - kLevelsAt - 20, ""),
      "profile ends within its levels");
  add("calibrated_truncated_tables", Replaced(good, kLayer1TablesAt, end - kLayer1TablesAt, ""),
      "tables[1]");
  add("calibrated_truncated_means", Replaced(good, kMeans0At + 4, end - kMeans0At - 4, ""),
      "groups[0].means");
  add("calibrated_truncated_basis", Replaced(good, end - 1, 1, ""), "groups[1].basis");
  add("calibrated_padding", Changed<uint8_t>(good, kPadding0At, 1), "groups[0] padding");
  std::string unsealed = good;
  Set<uint8_t>(unsealed, kBasis0At, 1);
  add("calibrated_checksum", unsealed, "profile checksum");
}

void AddStepCases(const std::string& good, const Add& add) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::pair<const char*, double> steps[] = {{"nan", std::numeric_limits<double>::quiet_NaN()},
                                                  {"infinite", kInfinity},
                                                  {"minus_infinite", -kInfinity},
                                                  {"huge", 0x1p41},
                                                  {"negative", -0.25},
                                                  {"negative_zero", -0.0},
                                                  {"tiny", 0x1p-41}};
  for (const auto& [name, step] : steps) {
    add(std::string("calibrated_step_") + name, Changed(good, StepAt(1), step), "planes[1].step");
  }
  // The plane is exact then, and its channels are missing from the group.
  add("calibrated_step_zero", Changed(good, StepAt(1), 0.0), "groups[0]");
  std::string none = good;
  for (size_t plane = 0; plane < kNumPlanes; ++plane) Set(none, StepAt(plane), 0.0);
  SealProfile(none);
  add("calibrated_step_all_zero", none, "number of levels does not agree");
  add("calibrated_step_of_fp8", Changed<uint8_t>(good, kPlanesAt + kPlaneBytes + 1, 4),
      "planes[1].step: the plane cannot be quantised");
}

void AddGroupCases(const std::string& good, const Add& add) {
  add("calibrated_groups_0", Changed<uint32_t>(good, kNumGroupsAt, 0), "number of groups");
  add("calibrated_groups_many", Changed<uint32_t>(good, kNumGroupsAt, 513), "number of groups");
  add("calibrated_groups_gap", Changed<uint32_t>(good, kGroupsAt + 8, 3), "groups[1] does not");
  add("calibrated_groups_overlap", Changed<uint32_t>(good, kGroupsAt + 8, 1), "groups[1] does not");
  add("calibrated_groups_first", Changed<uint32_t>(good, kGroupsAt, 1), "groups[0] does not");
  add("calibrated_group_empty", Changed<uint32_t>(good, kGroupsAt + 12, 0), "groups[1] does not");
  add("calibrated_group_past_end", Changed<uint32_t>(good, kGroupsAt + 12, 0xffffffff),
      "groups[1] does not");
  add("calibrated_groups_too_few", Changed<uint32_t>(good, kGroupsAt + 12, 1), "do not cover");
  // Dimensions are 4 bytes before the rotary table's index, which is 4 bytes before the step.
  std::string wide = good;
  Set<uint32_t>(wide, StepAt(0) - 8, 8191);
  Set<uint32_t>(wide, StepAt(1) - 8, 8194);
  SealProfile(wide);
  add("calibrated_group_large", wide, "groups[0] has 16385 coded channels");
  add("calibrated_plane_large", Changed<uint32_t>(good, StepAt(1) - 8, (1 << 16) + 1),
      "planes[1].step: the plane cannot be quantised");
}

void AddTableCases(const std::string& good, const Add& add) {
  add("calibrated_tables_0", Changed<uint8_t>(good, kBaseTablesAt, 0),
      "tables[0] number of classes is 0");
  add("calibrated_tables_many", Changed<uint8_t>(good, kLayer2TablesAt, 65),
      "tables[2] number of classes is 65");
  add("calibrated_tables_missing", Replaced(good, kLayer2TablesAt, kGroup0At - kLayer2TablesAt, ""),
      "tables[2]");
  add("calibrated_tables_one_more", Changed<uint8_t>(good, kLayer1TablesAt, 3), "tables[1][2]");
  add("calibrated_frequencies_sum", Changed<uint16_t>(good, kBaseTablesAt + 1, 2),
      "tables[0][0] do not sum to 4096");
  std::string zero = good;  // the sum is right
  Set<uint16_t>(zero, kBaseTablesAt + 1 + kBaseTableBytes, 0);
  Set<uint16_t>(zero, kBaseTablesAt + 1 + kBaseTableBytes + 2, 64 + 96);
  SealProfile(zero);
  add("calibrated_frequencies_zero", zero, "tables[0][1] do not sum to 4096 or have a zero");
  add("calibrated_frequencies_huge",
      Changed<uint16_t>(good, kGroup0At - kRefinementTableBytes, 0xffff), "tables[2][1] do not");
  const std::string table = good.substr(kBaseTablesAt + 1, kBaseTableBytes);
  add("calibrated_tables_alike",
      Replaced(good, kBaseTablesAt + 1 + kBaseTableBytes, table.size(), table), "");
}

void AddValueCases(const std::string& good, const Add& add) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::pair<const char*, float> means[] = {
      {"nan", kNan}, {"infinite", kInfinity}, {"minus_infinite", -kInfinity}, {"huge", 0x1p61f}};
  for (const auto& [name, mean] : means) {
    add(std::string("calibrated_mean_") + name, Changed(good, kMeans1At + 4, mean),
        "groups[1] has a mean");
  }
  const std::pair<const char*, uint16_t> elements[] = {{"nan", 0x7fc0},
                                                       {"infinite", 0x7f80},
                                                       {"minus_infinite", 0xff80},
                                                       {"huge", 0x4481},
                                                       {"minus_huge", 0xc481}};
  for (const auto& [name, bits] : elements) {
    add(std::string("calibrated_basis_") + name, Changed(good, kBasis1At + 6, bits),
        "groups[1].basis");
  }
  constexpr size_t kRowBytes = 2 * kChannels;
  add("calibrated_basis_zero",
      Replaced(good, kBasis0At, kChannels * kRowBytes, std::string(kChannels * kRowBytes, '\0')),
      "groups[0].basis has a row or a column of zeros");
  add("calibrated_basis_row_zero",
      Replaced(good, kBasis1At + kRowBytes, kRowBytes, std::string(kRowBytes, '\0')),
      "groups[1].basis has a row or a column of zeros");
  std::string column = good;  // minus zero is zero
  for (size_t row = 0; row < kChannels; ++row) {
    Set<uint16_t>(column, kBasis1At + row * kRowBytes + 2, row % 2 == 0 ? 0x8000 : 0);
  }
  SealProfile(column);
  add("calibrated_basis_column_zero", column, "groups[1].basis has a row or a column of zeros");
  // A decoder can work with it; an encoder finds that two channels of a head are the same.
  std::string singular = good;
  for (size_t row = 0; row < kChannels; ++row)
    Set<uint32_t>(singular, kBasis0At + row * kRowBytes, 0x3f003f00);
  SealProfile(singular);
  add("calibrated_basis_singular", singular, "");
  const char* figures[] = {"bits", "mean_error", "max_error", "kl"};
  for (size_t i = 0; i < std::size(figures); ++i) {
    const size_t at = kLevelsAt + 16 * (i % kLevels) + 4 * i;
    const float value = std::array{kNan, -1.0f, kInfinity, -kInfinity}[i];
    add(std::string("calibrated_level_") + figures[i], Changed(good, at, value),
        "has a figure that is negative or not finite");
  }
  add("calibrated_levels_0", Changed<uint8_t>(good, kNumLevelsAt, 0), "number of levels does not");
  add("calibrated_levels_9", Changed<uint8_t>(good, kNumLevelsAt, 9), "number of levels is 9");
  add("calibrated_sinks", Changed<uint32_t>(good, kSinksAt, 65), "sink_tokens is 65");
  add("calibrated_sections", Changed<uint32_t>(good, kSectionsAt, 1), "sections");
  add("calibrated_class_base", Changed<uint8_t>(good, kGroup0At, 3),
      "groups[0] has class 3 in layer 0, which has 2");
  add("calibrated_class_last", Changed<uint8_t>(good, kMeans1At - 1, 255),
      "groups[1] has class 255 in layer 2, which has 2");
}

// A chunk with one segment changed, and the checksums made right.
std::string WithSegment(const std::string& good, size_t layer, size_t group,
                        const std::function<void(std::string&)>& change) {
  ChunkHeader header = *ParseChunkHeader(AsBytes(good));
  SegmentEntry& entry = header.layers[layer].segments[group];
  const size_t offset = header.SegmentOffset(layer, group);
  std::string segment = good.substr(offset, entry.bytes);
  change(segment);
  std::string body = good.substr(header.header_bytes);
  body.replace(offset - header.header_bytes, entry.bytes, segment);
  entry = {static_cast<uint32_t>(segment.size()), Checksum(AsBytes(segment))};
  return SerializeChunkHeader(header) + body;
}

std::string WithHeader(const std::string& good, const std::function<void(ChunkHeader&)>& change) {
  ChunkHeader header = *ParseChunkHeader(AsBytes(good));
  const size_t header_bytes = header.header_bytes;
  change(header);
  return SerializeChunkHeader(header) + good.substr(header_bytes);
}

}  // namespace

Profile ExampleCalibratedProfile() {
  Calibration calibration;
  calibration.num_contexts = 3;
  calibration.num_tokens = 1000;
  for (int level = 0; level < kLevels; ++level) {
    calibration.levels.push_back({1.0f + static_cast<float>(level), 0.25f, 2, 0.5f});
    calibration.tables.push_back(ExampleTables(level == 0));
  }
  for (int group = 0; group < 2; ++group) {
    calibration.groups.push_back({.means = {1, -2, 0.5, 0},
                                  .classes = {{2, 2, 1, 0}, {2, 2, 2, 1}, {2, 2, 2, 1}},
                                  .basis = ExampleBasis()});
  }
  return *Profile::Calibrated(ExampleGeometry(), {0.25, 0.5, 0.25, 0.125}, {{0, 2}, {2, 2}},
                              Profile::kSinkTokens, std::move(calibration));
}

std::vector<std::string> ExampleCalibratedPlanes(uint32_t num_tokens) {
  constexpr float kDeviations[kChannels] = {24, 8, 3, 0.25};  // of coefficients, in steps
  const Profile profile = ExampleCalibratedProfile();
  std::mt19937 random(1);
  std::vector<std::vector<float>> values(kNumPlanes);
  for (size_t group = 0; group < 2; ++group) {
    for (uint32_t t = 0; t < num_tokens; ++t) {
      std::array<float, kChannels> coefficients;
      for (size_t row = 0; row < kChannels; ++row) {
        coefficients[row] = kDeviations[row] * NearlyNormal(random) * (t % 16 == 9 ? 16.0f : 1.0f);
      }
      for (size_t c = 0; c < kChannels; ++c) {
        float sum = 0;
        for (size_t row = 0; row < kChannels; ++row) {
          sum += coefficients[row] * (row == c ? 0.5f : -0.5f);
        }
        const size_t plane = 2 * group + c / kDim;
        values[plane].push_back(sum * static_cast<float>(profile.step(plane)));
      }
    }
  }
  std::vector<std::string> planes;
  for (const auto& of_plane : values) {
    planes.emplace_back(2 * of_plane.size(), '\0');
    FloatToElements(ElementType::kBf16, of_plane, std::as_writable_bytes(std::span(planes.back())));
  }
  return planes;
}

std::string ExampleCalibratedChunk() {
  const std::vector<std::string> planes = ExampleCalibratedPlanes(kTokens);
  std::vector<std::span<const std::byte>> views;
  for (const std::string& plane : planes) views.push_back(AsBytes(plane));
  return EncodeChunk(ExampleCalibratedProfile(), {.start_token = kStartToken}, views, kTokens,
                     {.lossy = true, .lossless = true})
      ->container;
}

void SealProfile(std::string& bytes) {
  const size_t end = bytes.size() - sizeof(uint64_t);
  Set(bytes, end, Checksum(AsBytes(bytes).first(end)));
}

bool SealChunk(const Profile& profile, std::string& bytes) {
  const auto header_bytes = PeekHeaderBytes(AsBytes(bytes));
  if (!header_bytes.ok() || *header_bytes > bytes.size()) return false;
  SealHeader(bytes);
  absl::StatusOr<ChunkHeader> header = ParseChunkHeader(AsBytes(bytes));
  if (!header.ok()) return false;
  header->profile_id = profile.id();
  uint64_t offset = header->header_bytes;
  for (LayerEntry& layer : header->layers) {
    for (SegmentEntry& segment : layer.segments) {
      if (segment.bytes > bytes.size() - offset) return false;
      segment.checksum = Checksum(AsBytes(bytes).subspan(offset, segment.bytes));
      offset += segment.bytes;
    }
  }
  bytes.replace(0, header->header_bytes, SerializeChunkHeader(*header));
  return true;
}

std::vector<GoldenCase> CalibratedProfileCases() {
  const std::string good = ExampleCalibratedProfile().bytes();
  std::vector<GoldenCase> cases = {{"profile", "calibrated", good, ""}};
  const Add add = [&](const std::string& name, std::string bytes, const char* expected) {
    cases.push_back({"profile", name, std::move(bytes), expected});
  };
  AddFrameCases(good, add);
  AddStepCases(good, add);
  AddGroupCases(good, add);
  AddTableCases(good, add);
  AddValueCases(good, add);
  return cases;
}

std::vector<GoldenCase> CalibratedChunkCases() {
  const std::string good = ExampleCalibratedChunk();
  std::vector<GoldenCase> cases = {{"calibrated_chunk", "example", good, ""}};
  const auto add = [&](const char* name, std::string bytes, const char* expected) {
    cases.push_back({"calibrated_chunk", name, std::move(bytes), expected});
  };
  const auto patch = [&](size_t layer, size_t offset, char value) {
    return WithSegment(good, layer, 0, [&](std::string& s) { s.at(offset) = value; });
  };
  // A base segment is its layer, the planes' modes, and the classes as a raw byte block: u24 size,
  // u8 mode, a byte for each row. Then come the escapes: a u32 length first.
  constexpr size_t kModesAt = 1;
  constexpr size_t kClassesAt = kModesAt + 2;
  constexpr size_t kEscapesAt = kClassesAt + 4 + kChannels;
  add("other_profile", WithHeader(good, [](ChunkHeader& h) { h.profile_id[0] ^= 1; }),
      "profile_id");
  add("layer_of_base", patch(0, 0, 1), "layer of the segment");
  add("layer_of_refinement", patch(1, 0, 2), "layer of the segment");
  add("mode_unknown", patch(0, kModesAt, 2), "planes[0].mode is 2");
  add("partly_exact", patch(0, kModesAt, 1), "some, not all, of the group's coded planes");
  add("class_of_base", patch(0, kClassesAt + 4, 40), "classes[0] is 42, not in 0..2");
  add("class_of_refinement", patch(2, 1 + 4, 100), "classes[0] is");
  add("classes_size", patch(0, kClassesAt, 3), "classes");
  add("escapes_huge", patch(0, kEscapesAt + 3, '\x7f'), "escapes is");
  add("base_truncated", WithSegment(good, 0, 1, [](std::string& s) { s.pop_back(); }),
      "but 149 are left");
  add("base_trailing", WithSegment(good, 0, 1, [](std::string& s) { s += 'x'; }),
      "base segment has 1 bytes too many");
  add("base_empty", WithSegment(good, 0, 0, [](std::string& s) { s.clear(); }),
      "layer of the segment");
  add("refinement_trailing", WithSegment(good, 2, 1, [](std::string& s) { s += 'x'; }),
      "refinement segment has 1 bytes too many");
  add("symbols_damaged", WithSegment(good, 1, 0, [](std::string& s) { s[s.size() - 1] ^= 0x55; }),
      "rANS stream does not end in its first state");
  add("groups_too_few",
      WithHeader(good,
                 [](ChunkHeader& h) {
                   for (LayerEntry& layer : h.layers) layer.segments.pop_back();
                 }),
      "number of groups");
  add("levels_too_many",
      WithHeader(good,
                 [](ChunkHeader& h) {
                   h.layers.insert(h.layers.begin() + kLevels, h.layers[kLevels - 1]);
                   h.layers[kLevels].level = kLevels;
                 }),
      "level is 3, but the profile has only 3");
  return cases;
}

absl::Status DecodeAllLevels(const Profile& profile, const std::string& container) {
  ASSIGN_OR_RETURN(const ChunkHeader header, ParseChunkHeader(AsBytes(container)));
  RETURN_IF_ERROR(CheckCompatible(profile, header));
  RETURN_IF_ERROR(VerifyContainer(AsBytes(container)).status());
  absl::Status status;
  for (const LayerEntry& layer : header.layers) {
    const int last = header.LayerOfLevel(layer.level);
    for (size_t group = 0; group < profile.groups().size(); ++group) {
      std::vector<std::span<const std::byte>> segments;
      for (int l = layer.level == kLossless ? last : 0; l <= last; ++l) {
        segments.push_back(AsBytes(container).subspan(header.SegmentOffset(l, group),
                                                      header.layers[l].segments[group].bytes));
      }
      const GroupSpec& spec = profile.groups()[group];
      std::vector<std::string> planes;
      for (uint32_t i = 0; i < spec.num_planes; ++i) {
        planes.emplace_back(
            header.num_tokens * profile.geometry().planes[spec.first_plane + i].bytes_per_token(),
            '\0');
      }
      std::vector<std::span<std::byte>> out;
      for (std::string& plane : planes) out.push_back(std::as_writable_bytes(std::span(plane)));
      status.Update(DecodeGroup(profile, header, group, layer.level, segments, out));
    }
  }
  return status;
}

}  // namespace sluice::codec
