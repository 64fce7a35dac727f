#include "client/context_input.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "codec/status_macros.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using codec::ElementType;
using codec::PlaneKind;
using codec::PlaneSpec;

constexpr std::pair<PlaneKind, const char*> kKinds[] = {
    {PlaneKind::kKey, "k"},
    {PlaneKind::kValue, "v"},
    {PlaneKind::kLatent, "latent"},
    {PlaneKind::kOpaque, "opaque"},
};

constexpr std::pair<ElementType, const char*> kTypes[] = {
    {ElementType::kBf16, "BF16"},       {ElementType::kFp16, "F16"},
    {ElementType::kFp32, "F32"},        {ElementType::kFp8E4M3, "F8_E4M3"},
    {ElementType::kFp8E5M2, "F8_E5M2"}, {ElementType::kBytes, "U8"},
};

constexpr double kMaxTheta = 1e12;

std::string TensorName(size_t layer, absl::string_view kind) {
  return absl::StrCat("layers.", layer, ".", kind);
}

absl::Status Bad(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\" ", what));
}

// Metadata of one model layer: "layers.3.rope_theta" before "rope_theta"; null if there is neither.
const std::string* Find(const std::map<std::string, std::string>& metadata, size_t layer,
                        absl::string_view key) {
  auto it = metadata.find(TensorName(layer, key));
  if (it == metadata.end()) it = metadata.find(std::string(key));
  return it == metadata.end() ? nullptr : &it->second;
}

absl::Status BadMetadata(absl::string_view key, absl::string_view value, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("metadata \"", key, "\" is \"", value.substr(0, 40), "\"; it must be ", wanted));
}

absl::StatusOr<std::vector<double>> ParseFrequencies(const std::string& text) {
  const auto list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<double> frequencies;
  bool good = list.is_array() && list.size() <= codec::Geometry::kMaxRotaryPairs;
  for (size_t i = 0; good && i < list.size(); ++i) {
    good = list[i].is_number() && std::isfinite(list[i].get<double>());
    if (good) frequencies.push_back(list[i].get<double>());
  }
  if (!good) return BadMetadata("rope_inv_freq", text, "a JSON list of finite numbers");
  return frequencies;
}

// The rotary embedding of a plane with `head_dim`, without frequencies if it has none.
absl::StatusOr<codec::RotaryTable> ParseRotary(const std::map<std::string, std::string>& metadata,
                                               size_t layer, PlaneKind kind, uint32_t head_dim) {
  codec::RotaryTable table;
  if (const std::string* layout = Find(metadata, layer, "rope_layout"); layout != nullptr) {
    if (*layout != "half" && *layout != "interleaved") {
      return BadMetadata("rope_layout", *layout, "\"half\" or \"interleaved\"");
    }
    if (*layout == "interleaved") table.layout = codec::RotaryLayout::kInterleaved;
  }
  uint32_t rope_dim = kind == PlaneKind::kKey ? head_dim : 0;  // latents: only if it is said
  if (const std::string* text = Find(metadata, layer, "rope_dim"); text != nullptr) {
    if (!absl::SimpleAtoi(*text, &rope_dim) || rope_dim > head_dim || rope_dim % 2 != 0) {
      return BadMetadata("rope_dim", *text, absl::StrCat("even and at most ", head_dim));
    }
  }
  const std::string* frequencies = Find(metadata, layer, "rope_inv_freq");
  const std::string* theta = Find(metadata, layer, "rope_theta");
  if (frequencies != nullptr) {
    ASSIGN_OR_RETURN(table.inverse_frequencies, ParseFrequencies(*frequencies));
    if (2 * table.inverse_frequencies.size() > head_dim) {
      return BadMetadata("rope_inv_freq", *frequencies,
                         absl::StrCat("of at most ", head_dim / 2, " numbers"));
    }
  } else if (theta != nullptr) {
    double value = 0;
    if (!absl::SimpleAtod(*theta, &value) || !(value >= 0) || value > kMaxTheta) {
      return BadMetadata("rope_theta", *theta, "a number, 0 if keys are not rotated");
    }
    if (value > 0 && rope_dim > 0) {
      if (rope_dim % 2 != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("head_dim ", head_dim, " is odd: give \"rope_dim\", or \"rope_theta\" 0"));
      }
      table = codec::MakeRotaryTable(value, rope_dim, table.layout);
    }
  }
  const uint32_t rotated = 2 * static_cast<uint32_t>(table.inverse_frequencies.size());
  if (kind == PlaneKind::kLatent) table.first_dim = head_dim - rotated;
  if (const std::string* text = Find(metadata, layer, "rope_first_dim"); text != nullptr) {
    if (!absl::SimpleAtoi(*text, &table.first_dim) || table.first_dim > head_dim - rotated) {
      return BadMetadata("rope_first_dim", *text, absl::StrCat("at most ", head_dim - rotated));
    }
  }
  return table;
}

// Adds the plane's rotary table to the geometry, once per different table.
absl::Status AddRotary(const std::map<std::string, std::string>& metadata, PlaneSpec& spec,
                       std::vector<codec::RotaryTable>& tables) {
  if (spec.kind != PlaneKind::kKey && spec.kind != PlaneKind::kLatent) return absl::OkStatus();
  auto table = ParseRotary(metadata, spec.model_layer, spec.kind, spec.head_dim);
  if (!table.ok()) return table.status();
  if (table->inverse_frequencies.empty()) return absl::OkStatus();
  auto it = std::ranges::find(tables, *table);
  if (it == tables.end()) it = tables.insert(it, *table);
  spec.rotary_table = static_cast<int32_t>(it - tables.begin());
  return absl::OkStatus();
}

absl::StatusOr<PlaneSpec> MakeSpec(const std::string& name, PlaneKind kind, size_t layer,
                                   const TensorEntry& entry) {
  PlaneSpec spec;
  spec.kind = kind;
  spec.model_layer = static_cast<uint32_t>(layer);
  const auto type = std::ranges::find(kTypes, entry.dtype, [](const auto& t) { return t.second; });
  const bool opaque = kind == PlaneKind::kOpaque;
  if (type == std::end(kTypes) || (type->first == ElementType::kBytes) != opaque) {
    return Bad(name, absl::StrCat("has dtype ", entry.dtype, "; it must be ",
                                  opaque ? "U8" : "BF16, F16, F32, F8_E4M3 or F8_E5M2"));
  }
  spec.element_type = type->first;
  const auto& shape = entry.shape;
  if (shape.size() != 3) {
    return Bad(name, absl::StrCat("has shape [", absl::StrJoin(shape, ", "),
                                  "]; it must be [num_kv_heads, num_tokens, head_dim]"));
  }
  if (shape[0] < 1 || shape[0] > codec::Geometry::kMaxHeads || shape[2] < 1 ||
      shape[2] > codec::Geometry::kMaxHeadDim || shape[1] > kMaxContextTokens) {
    return Bad(name,
               absl::StrCat("has shape [", absl::StrJoin(shape, ", "),
                            "], which is out of range: [1..", codec::Geometry::kMaxHeads, ", 1..",
                            kMaxContextTokens, ", 1..", codec::Geometry::kMaxHeadDim, "]"));
  }
  if (opaque && shape[0] != 1) return Bad(name, "must have shape [1, num_tokens, bytes]");
  spec.num_heads = static_cast<uint32_t>(shape[0]);
  spec.head_dim = static_cast<uint32_t>(shape[2]);
  return spec;
}

// Every tensor must be one that is known; a misspelt one would be left out of the cache in silence.
absl::Status CheckNames(const std::map<std::string, TensorEntry>& tensors, size_t num_layers) {
  for (const auto& [name, entry] : tensors) {
    bool known = false;
    size_t layer = 0;
    const char* at = name.data() + std::min<size_t>(name.size(), 7);
    const char* end = name.data() + name.size();
    const auto number = std::from_chars(at, end, layer);
    if (name.starts_with("layers.") && number.ec == std::errc()) {
      for (const auto& [kind, suffix] : kKinds) {
        if (name != TensorName(layer, suffix)) continue;
        if (layer >= num_layers) {
          return Bad(TensorName(num_layers, suffix),
                     absl::StrCat("is missing, but \"", name,
                                  "\" is there: layers are numbered from 0 without gaps"));
        }
        known = true;
      }
    }
    if (!known) {
      return Bad(name, "is unknown; names are layers.{i}.k, .v, .latent and .opaque, i from 0");
    }
  }
  return absl::OkStatus();
}

// Lists the planes of one model layer; none if the file does not have the layer.
absl::Status AddLayer(ContextInput& input, size_t layer) {
  const auto& tensors = input.file.tensors();
  const auto has = [&](absl::string_view kind) {
    return tensors.contains(TensorName(layer, kind));
  };
  if (has("k") != has("v")) {
    return Bad(TensorName(layer, has("k") ? "v" : "k"),
               absl::StrCat("is missing, but \"", TensorName(layer, has("k") ? "k" : "v"),
                            "\" is there; add it"));
  }
  for (const auto& [kind, suffix] : kKinds) {
    const std::string name = TensorName(layer, suffix);
    const auto it = tensors.find(name);
    if (it == tensors.end()) continue;
    ASSIGN_OR_RETURN(PlaneSpec spec, MakeSpec(name, kind, layer, it->second));
    if (input.planes.empty()) input.num_tokens = static_cast<uint32_t>(it->second.shape[1]);
    if (it->second.shape[1] != input.num_tokens) {
      return Bad(name, absl::StrCat("has ", it->second.shape[1], " tokens, but \"",
                                    PlaneTensorName(input.geometry.planes[0]), "\" has ",
                                    input.num_tokens, "; all must have the same"));
    }
    RETURN_IF_ERROR(AddRotary(input.file.metadata(), spec, input.geometry.rotary_tables));
    input.geometry.planes.push_back(spec);
    input.planes.push_back(input.file.data(it->second));
  }
  return absl::OkStatus();
}

absl::Status AddMetadata(ContextInput& input) {
  const auto& metadata = input.file.metadata();
  const auto text = [&](const char* key) {
    const auto it = metadata.find(key);
    return it == metadata.end() ? std::string() : it->second;
  };
  input.model = text("model");
  input.revision = text("revision");
  input.adapter = text("adapter");
  if (const std::string missing = text("sluice_missing_chunks"); missing.size() > 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunks ", missing, " of the context are missing in this file; fetch it again whole"));
  }
  const auto ids = metadata.find("token_ids");
  if (ids == metadata.end()) {
    input.notes.push_back("no token_ids in the metadata: this cache cannot be put on a server");
    return absl::OkStatus();
  }
  auto token_ids = ParseTokenIds(ids->second);
  if (!token_ids.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata \"token_ids\": ", token_ids.status().message()));
  }
  if (token_ids->size() != input.num_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("metadata \"token_ids\" has ", token_ids->size(),
                                                   " ids, but the tensors have ", input.num_tokens,
                                                   " tokens; there must be one id per token"));
  }
  input.token_ids = *std::move(token_ids);
  return absl::OkStatus();
}

absl::Status AddAll(ContextInput& input) {
  size_t layers = 0;
  for (size_t before = 0; input.geometry.planes.size() <= codec::Geometry::kMaxPlanes; ++layers) {
    RETURN_IF_ERROR(AddLayer(input, layers));
    if (input.planes.size() == before) break;
    before = input.planes.size();
  }
  RETURN_IF_ERROR(CheckNames(input.file.tensors(), layers));
  if (input.planes.empty()) {
    return Bad("layers.0.k", "is missing; a cache has layers.{i}.k and layers.{i}.v, i from 0");
  }
  if (input.num_tokens == 0) return Bad(PlaneTensorName(input.geometry.planes[0]), "has no tokens");
  if (input.geometry.rotary_tables.empty()) {
    input.notes.push_back("rope_theta is absent or 0: keys are taken as not rotated");
  }
  RETURN_IF_ERROR(AddMetadata(input));
  return input.geometry.Validate();
}

}  // namespace

std::string PlaneTensorName(const PlaneSpec& spec) {
  const auto kind = std::ranges::find(kKinds, spec.kind, [](const auto& k) { return k.first; });
  return TensorName(spec.model_layer, kind == std::end(kKinds) ? "unknown" : kind->second);
}

std::string_view PlaneDtype(ElementType type) {
  const auto it = std::ranges::find(kTypes, type, [](const auto& t) { return t.first; });
  return it == std::end(kTypes) ? "" : it->second;
}

absl::StatusOr<std::vector<uint32_t>> ParseTokenIds(std::string_view text) {
  static constexpr std::string_view kBlanks = " \t\r\n,";
  const auto blank = [](char c) { return kBlanks.find(c) != kBlanks.npos; };
  const auto trim = [&] {
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  };
  trim();
  if (text.starts_with('[') && text.ends_with(']') && text.size() >= 2) {
    text = text.substr(1, text.size() - 2);
  }
  std::vector<uint32_t> ids;
  for (trim(); !text.empty(); trim()) {
    uint32_t id = 0;
    const auto end = text.data() + text.size();
    const auto number = std::from_chars(text.data(), end, id);
    const bool whole = number.ptr == end || blank(*number.ptr);
    if (number.ec != std::errc() || !whole) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token id ", ids.size(), " is \"",
          std::string(text.substr(0, std::min<size_t>(text.find_first_of(kBlanks), 20))),
          "\"; ids are whole numbers below 2^32"));
    }
    if (ids.size() == kMaxContextTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMaxContextTokens, " token ids"));
    }
    ids.push_back(id);
    text.remove_prefix(static_cast<size_t>(number.ptr - text.data()));
  }
  return ids;
}

std::string FormatTokenIds(std::span<const uint32_t> token_ids) {
  return absl::StrCat("[", absl::StrJoin(token_ids, ", "), "]");
}

std::map<std::string, std::string> RotaryMetadata(const codec::Geometry& geometry) {
  std::map<std::string, std::string> metadata;
  for (const PlaneSpec& spec : geometry.planes) {
    if (spec.kind != PlaneKind::kKey && spec.kind != PlaneKind::kLatent) continue;
    const bool rotated = spec.rotary_table != PlaneSpec::kNotRotated;
    if (!rotated) {
      metadata[TensorName(spec.model_layer, "rope_theta")] = std::string("0");
      continue;
    }
    const codec::RotaryTable& table = geometry.rotary_tables[spec.rotary_table];
    const bool half = table.layout == codec::RotaryLayout::kHalf;
    metadata[TensorName(spec.model_layer, "rope_layout")] =
        std::string(half ? "half" : "interleaved");
    metadata[TensorName(spec.model_layer, "rope_inv_freq")] =
        nlohmann::json(table.inverse_frequencies).dump();
    metadata[TensorName(spec.model_layer, "rope_first_dim")] = absl::StrCat(table.first_dim);
  }
  return metadata;
}

absl::StatusOr<ContextInput> ReadContext(const std::string& path) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  ContextInput input;
  input.file = std::move(file);
  if (absl::Status status = AddAll(input); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
  }
  return input;
}

ChunkPlanes::ChunkPlanes(const ContextInput& input, uint32_t start_token, uint32_t num_tokens)
    : bytes_(input.geometry.bytes_per_token() * num_tokens) {
  std::byte* out = bytes_.data();
  for (size_t i = 0; i < input.planes.size(); ++i) {
    const PlaneSpec& spec = input.geometry.planes[i];
    const size_t row_bytes = spec.head_dim * codec::ElementBytes(spec.element_type);
    planes_.emplace_back(out, row_bytes * spec.num_heads * num_tokens);
    for (size_t head = 0; head < spec.num_heads; ++head) {
      const size_t from = (head * input.num_tokens + start_token) * row_bytes;
      std::memcpy(out, input.planes[i].data() + from, num_tokens * row_bytes);
      out += num_tokens * row_bytes;
    }
  }
}

bool HasNonFinite(ElementType type, std::span<const std::byte> plane) {
  // A value is not finite when all bits of its exponent are set; E4M3 has NaN alone, as 0x7f.
  uint32_t mask = 0;
  switch (type) {
    case ElementType::kBf16:
      mask = 0x7f80;
      break;
    case ElementType::kFp16:
      mask = 0x7c00;
      break;
    case ElementType::kFp32:
      mask = 0x7f800000;
      break;
    case ElementType::kFp8E4M3:
      mask = 0x7f;
      break;
    case ElementType::kFp8E5M2:
      mask = 0x7c;
      break;
    case ElementType::kBytes:
      return false;
  }
  const size_t bytes = codec::ElementBytes(type);
  for (size_t at = 0; at + bytes <= plane.size(); at += bytes) {
    uint32_t value = 0;
    std::memcpy(&value, plane.data() + at, bytes);  // little-endian hosts, as the codec
    if ((value & mask) == mask) return true;
  }
  return false;
}

}  // namespace sluice::client
