#include "codec/profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/bytes.h"
#include "codec/calibration_bytes.h"
#include "codec/container.h"
#include "codec/group_transform.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr uint32_t kMagic = 0x46504c53;  // "SLPF"
constexpr uint16_t kVersion = 1;
enum ProfileKind : uint16_t { kBuiltin = 0, kCalibrated = 1 };
constexpr int kBuiltinLevels = 3;

// Measured on real caches of six documents: among steps of one rate these have the least
// divergence, to within the documents' scatter. Errors in the values of the first model layers cost
// most, because they pass through all that follow.
constexpr double kKeyStep = 0.48;
constexpr double kValueStep = 0.59;  // half of it in the first model layer, twice in the last

double BuiltinStep(const PlaneSpec& plane, uint32_t last_model_layer) {
  if (!IsQuantisable(plane.element_type) || plane.channels() > Profile::kMaxCodedChannels) return 0;
  double step = kKeyStep;
  if (plane.kind != PlaneKind::kKey) {
    const double depth = last_model_layer == 0 ? 0.5 : 1.0 * plane.model_layer / last_model_layer;
    step = kValueStep * std::exp2(2 * depth - 1);
  }
  // A multiple of 1/256, so that the same model gives the same bytes on every machine.
  return std::round(256 * step) / 256;
}

std::vector<GroupSpec> GroupByModelLayer(const Geometry& geometry,
                                         const std::vector<double>& steps) {
  std::vector<GroupSpec> groups;
  size_t coded_channels = 0;
  for (uint32_t i = 0; i < geometry.planes.size(); ++i) {
    const PlaneSpec& plane = geometry.planes[i];
    const size_t channels = steps[i] > 0 ? plane.channels() : 0;
    const bool same_layer = i > 0 && geometry.planes[i - 1].model_layer == plane.model_layer;
    if (same_layer && coded_channels + channels <= Profile::kMaxGroupChannels) {
      ++groups.back().num_planes;
      coded_channels += channels;
    } else {
      groups.push_back({i, 1});
      coded_channels = channels;
    }
  }
  return groups;
}

absl::Status ReadRotaryTable(const std::string& name, ByteReader& reader, RotaryTable& table) {
  uint8_t layout = 0;
  uint32_t pairs = 0;
  RETURN_IF_ERROR(reader.Read(name + ".layout", layout));
  RETURN_IF_ERROR(reader.Read(name + ".first_dim", table.first_dim));
  RETURN_IF_ERROR(
      reader.ReadInRange<uint32_t>(name + " number of pairs", 1, Geometry::kMaxRotaryPairs, pairs));
  table.layout = RotaryLayout{layout};
  table.inverse_frequencies.resize(pairs);
  return reader.ReadInto(name + ".inverse_frequencies",
                         std::as_writable_bytes(std::span(table.inverse_frequencies)));
}

absl::Status ReadPlane(const std::string& name, ByteReader& reader, PlaneSpec& plane,
                       double& step) {
  uint8_t kind = 0;
  uint8_t type = 0;
  RETURN_IF_ERROR(reader.Read(name + ".kind", kind));
  RETURN_IF_ERROR(reader.Read(name + ".element_type", type));
  RETURN_IF_ERROR(reader.Read(name + ".model_layer", plane.model_layer));
  RETURN_IF_ERROR(reader.Read(name + ".num_heads", plane.num_heads));
  RETURN_IF_ERROR(reader.Read(name + ".head_dim", plane.head_dim));
  RETURN_IF_ERROR(reader.Read(name + ".rotary_table", plane.rotary_table));
  plane.kind = PlaneKind{kind};
  plane.element_type = ElementType{type};
  return reader.Read(name + ".step", step);
}

absl::Status ReadGeometry(ByteReader& reader, Geometry& geometry, std::vector<double>& steps) {
  uint32_t count = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("number of rotary tables", 0,
                                               Geometry::kMaxRotaryTables, count));
  for (uint32_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(ReadRotaryTable(absl::StrCat("rotary_tables[", i, "]"), reader,
                                    geometry.rotary_tables.emplace_back()));
  }
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("number of planes", 1, Geometry::kMaxPlanes, count));
  for (uint32_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(ReadPlane(absl::StrCat("planes[", i, "]"), reader,
                              geometry.planes.emplace_back(), steps.emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status ReadGroups(ByteReader& reader, std::vector<GroupSpec>& groups) {
  uint32_t count = 0;
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("number of groups", 1, Profile::kMaxGroups, count));
  for (uint32_t i = 0; i < count; ++i) {
    GroupSpec& group = groups.emplace_back();
    RETURN_IF_ERROR(reader.Read(absl::StrCat("groups[", i, "].first_plane"), group.first_plane));
    RETURN_IF_ERROR(reader.Read(absl::StrCat("groups[", i, "].num_planes"), group.num_planes));
  }
  return absl::OkStatus();
}

absl::Status ValidateStep(size_t i, const PlaneSpec& plane, double step, bool calibrated) {
  if (step == 0 && !std::signbit(step)) return absl::OkStatus();
  const std::string name = absl::StrCat("planes[", i, "].step");
  const double low = calibrated ? Profile::kMinCalibratedStep : Profile::kMinRelativeStep;
  const double high = calibrated ? kMaxCalibratedStep : Profile::kMaxRelativeStep;
  if (!(step >= low && step <= high)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " ", step, " is out of range"));
  }
  if (!IsQuantisable(plane.element_type) || plane.channels() > Profile::kMaxCodedChannels) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the plane cannot be quantised"));
  }
  return absl::OkStatus();
}

absl::Status ValidateGroups(const Geometry& geometry, const std::vector<double>& steps,
                            const std::vector<GroupSpec>& groups) {
  if (groups.empty() || groups.size() > Profile::kMaxGroups) {
    return absl::InvalidArgumentError(
        absl::StrCat("number of groups is ", groups.size(), ", not in 1..", Profile::kMaxGroups));
  }
  size_t next = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const size_t left = geometry.planes.size() - next;
    if (groups[g].first_plane != next || groups[g].num_planes < 1 || groups[g].num_planes > left) {
      return absl::InvalidArgumentError(
          absl::StrCat("groups[", g, "] does not follow the one before"));
    }
    size_t coded_channels = 0;
    for (uint32_t i = 0; i < groups[g].num_planes; ++i, ++next) {
      if (steps[next] > 0) coded_channels += geometry.planes[next].channels();
    }
    if (coded_channels > Profile::kMaxGroupChannels) {
      return absl::InvalidArgumentError(absl::StrCat("groups[", g, "] has too many channels"));
    }
  }
  if (next != geometry.planes.size()) {
    return absl::InvalidArgumentError("groups do not cover all planes");
  }
  return absl::OkStatus();
}

}  // namespace

std::string LevelName(Level level) { return level == kLossless ? "lossless" : absl::StrCat(level); }

absl::StatusOr<Profile> Profile::Builtin(Geometry geometry) {
  RETURN_IF_ERROR(geometry.Validate());
  Profile profile;
  profile.geometry_ = std::move(geometry);
  for (const PlaneSpec& plane : profile.geometry_.planes) {
    const double step = BuiltinStep(plane, profile.geometry_.planes.back().model_layer);
    if (step > 0) profile.num_levels_ = kBuiltinLevels;
    profile.steps_.push_back(step);
  }
  profile.groups_ = GroupByModelLayer(profile.geometry_, profile.steps_);
  RETURN_IF_ERROR(profile.Validate());
  profile.Seal();
  return profile;
}

absl::StatusOr<Profile> Profile::Calibrated(Geometry geometry, std::vector<double> steps,
                                            std::vector<GroupSpec> groups, uint32_t sink_tokens,
                                            Calibration calibration) {
  RETURN_IF_ERROR(geometry.Validate());
  if (steps.size() != geometry.planes.size()) {
    return absl::InvalidArgumentError("a profile must have a step of each plane");
  }
  if (sink_tokens > kMaxSinkTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("sink_tokens is ", sink_tokens, ", more than ", kMaxSinkTokens));
  }
  Profile profile;
  profile.geometry_ = std::move(geometry);
  profile.steps_ = std::move(steps);
  profile.groups_ = std::move(groups);
  profile.sink_tokens_ = sink_tokens;
  profile.num_levels_ = static_cast<int>(std::min<size_t>(calibration.levels.size(), 255));
  profile.calibration_ = std::move(calibration);
  RETURN_IF_ERROR(profile.Validate());
  profile.Seal();
  // What was written is what a reader accepts: the bases are checked there.
  return Parse(std::move(profile.bytes_));
}

absl::StatusOr<Profile> Profile::Parse(std::span<const std::byte> bytes) {
  return Parse(std::string(AsText(bytes)));
}

absl::StatusOr<Profile> Profile::Parse(std::string bytes) {
  const auto all = AsBytes(bytes);
  if (all.size() < sizeof(uint64_t)) return absl::DataLossError("profile is too short");
  const auto body = all.first(all.size() - sizeof(uint64_t));
  ByteReader reader(all);
  uint32_t magic = 0;
  RETURN_IF_ERROR(reader.Read("profile magic", magic));
  if (magic != kMagic) return absl::DataLossError("profile magic is wrong: not a profile");
  uint16_t version = 0;
  RETURN_IF_ERROR(reader.Read("profile version", version));
  if (version != kVersion) {
    return absl::UnimplementedError(absl::StrCat("profile version ", version, " is not known"));
  }
  uint64_t checksum = 0;
  RETURN_IF_ERROR(ByteReader(all.subspan(body.size())).Read("profile checksum", checksum));
  if (checksum != Checksum(body)) return absl::DataLossError("profile checksum is wrong");

  Profile profile;
  RETURN_IF_ERROR(profile.ParseBody(reader));
  RETURN_IF_ERROR(reader.Read("profile checksum", checksum));
  RETURN_IF_ERROR(reader.ExpectEnd("profile"));
  profile.id_ = Sha256(all);
  profile.bytes_ = std::move(bytes);
  return profile;
}

absl::Status Profile::ParseBody(ByteReader& reader) {
  uint16_t kind = 0;
  uint8_t levels = 0;
  uint32_t sections = 0;
  RETURN_IF_ERROR(reader.Read("profile kind", kind));
  if (kind > kCalibrated) {
    return absl::UnimplementedError(absl::StrCat("profile kind ", kind, " is not known"));
  }
  RETURN_IF_ERROR(ReadGeometry(reader, geometry_, steps_));
  RETURN_IF_ERROR(ReadGroups(reader, groups_));
  RETURN_IF_ERROR(reader.ReadInRange<uint8_t>("number of levels", 0, kMaxLossyLevels, levels));
  RETURN_IF_ERROR(reader.ReadInRange<uint32_t>("sink_tokens", 0, kMaxSinkTokens, sink_tokens_));
  RETURN_IF_ERROR(reader.Read("number of sections", sections));
  if (sections != 0) return absl::UnimplementedError("profile has sections that are not known");
  num_levels_ = levels;
  if (kind == kBuiltin) return Validate();

  // The rest is measured by the groups' channels, so those must be valid first.
  RETURN_IF_ERROR(ValidateCommon(true));
  std::vector<size_t> channels(groups_.size());
  for (size_t g = 0; g < channels.size(); ++g) channels[g] = coded_channels(g);
  transforms_ = std::make_shared<TransformCache>(groups_.size());
  return ReadCalibration(num_levels_, channels, reader, calibration_.emplace(), basis_offsets_);
}

size_t Profile::coded_channels(size_t group) const {
  size_t channels = 0;
  const GroupSpec& spec = groups_[group];
  for (size_t i = spec.first_plane; i < spec.first_plane + spec.num_planes; ++i) {
    if (is_coded(i)) channels += geometry_.planes[i].channels();
  }
  return channels;
}

std::span<const uint16_t> Profile::basis(size_t group) const {
  const size_t channels = coded_channels(group);
  return {reinterpret_cast<const uint16_t*>(bytes_.data() + basis_offsets_[group]),
          channels * channels};
}

absl::Status Profile::ValidateCommon(bool calibrated) const {
  RETURN_IF_ERROR(geometry_.Validate());
  bool coded = false;
  for (size_t i = 0; i < geometry_.planes.size(); ++i) {
    RETURN_IF_ERROR(ValidateStep(i, geometry_.planes[i], steps_[i], calibrated));
    coded = coded || is_coded(i);
  }
  if (coded != (num_levels_ > 0)) {
    return absl::InvalidArgumentError("number of levels does not agree with the planes' steps");
  }
  return ValidateGroups(geometry_, steps_, groups_);
}

absl::Status Profile::Validate() const {
  RETURN_IF_ERROR(ValidateCommon(calibration_.has_value()));
  if (!calibration_) return absl::OkStatus();
  std::vector<size_t> channels(groups_.size());
  for (size_t g = 0; g < channels.size(); ++g) {
    channels[g] = coded_channels(g);
    if (calibration_->groups.size() > g &&
        calibration_->groups[g].basis.size() != channels[g] * channels[g]) {
      return absl::InvalidArgumentError(
          absl::StrCat("groups[", g, "].basis is not a square of the coded channels"));
    }
  }
  return ValidateCalibration(*calibration_, num_levels_, channels);
}

void Profile::Seal() {
  ByteWriter writer;
  writer.Write<uint32_t>(kMagic);
  writer.Write<uint16_t>(kVersion);
  writer.Write<uint16_t>(calibration_ ? kCalibrated : kBuiltin);
  writer.Write<uint32_t>(geometry_.rotary_tables.size());
  for (const RotaryTable& table : geometry_.rotary_tables) {
    writer.Write<uint8_t>(static_cast<uint8_t>(table.layout));
    writer.Write<uint32_t>(table.first_dim);
    writer.Write<uint32_t>(table.inverse_frequencies.size());
    writer.WriteBytes(std::as_bytes(std::span(table.inverse_frequencies)));
  }
  writer.Write<uint32_t>(geometry_.planes.size());
  for (size_t i = 0; i < geometry_.planes.size(); ++i) {
    const PlaneSpec& plane = geometry_.planes[i];
    writer.Write<uint8_t>(static_cast<uint8_t>(plane.kind));
    writer.Write<uint8_t>(static_cast<uint8_t>(plane.element_type));
    writer.Write<uint32_t>(plane.model_layer);
    writer.Write<uint32_t>(plane.num_heads);
    writer.Write<uint32_t>(plane.head_dim);
    writer.Write<int32_t>(plane.rotary_table);
    writer.Write<double>(steps_[i]);
  }
  writer.Write<uint32_t>(groups_.size());
  for (const GroupSpec& group : groups_) {
    writer.Write<uint32_t>(group.first_plane);
    writer.Write<uint32_t>(group.num_planes);
  }
  writer.Write<uint8_t>(num_levels_);
  writer.Write<uint32_t>(sink_tokens_);
  writer.Write<uint32_t>(0);  // sections
  if (calibration_) WriteCalibration(*calibration_, writer);
  writer.Write<uint64_t>(Checksum(writer.bytes()));
  bytes_ = std::move(writer).Take();
  id_ = Sha256(AsBytes(bytes_));
}

}  // namespace sluice::codec
