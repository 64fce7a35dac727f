#include "client/cli/calibrate_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/failure.h"
#include "client/cli/json.h"
#include "client/file_io.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

using codec::Geometry;
using codec::PlaneSpec;

constexpr uint64_t kMaxSensitivityBytes = uint64_t{16} << 20;

// How plane `a` differs from `b`; empty if it does not.
std::string Difference(const std::string& name, const PlaneSpec& a, const PlaneSpec& b) {
  const auto differ = [&](const char* field, auto x, auto y) {
    return absl::StrCat(name, " has ", field, " ", x, ", not ", y);
  };
  if (a.element_type != b.element_type) {
    return differ("dtype", std::string(client::PlaneDtype(a.element_type)),
                  std::string(client::PlaneDtype(b.element_type)));
  }
  if (a.num_heads != b.num_heads) return differ("num_heads", a.num_heads, b.num_heads);
  if (a.head_dim != b.head_dim) return differ("head_dim", a.head_dim, b.head_dim);
  if (a.kind != b.kind || a.model_layer != b.model_layer) return name + " is another plane";
  return "";
}

// How geometry `a` differs from `b`; empty if it does not.
std::string Difference(const Geometry& a, const Geometry& b) {
  for (size_t i = 0; i < std::min(a.planes.size(), b.planes.size()); ++i) {
    const std::string difference =
        Difference(client::PlaneTensorName(b.planes[i]), a.planes[i], b.planes[i]);
    if (!difference.empty()) return difference;
  }
  if (a.planes.size() != b.planes.size()) {
    return absl::StrCat("has ", a.planes.size(), " planes, not ", b.planes.size());
  }
  return a == b ? "" : "the rotary embedding (rope_...) differs";
}

// The same values in the same planes: a copy of a context, or the same one by another name.
bool SameValues(const codec::TrainingContext& a, const codec::TrainingContext& b) {
  return a.num_tokens == b.num_tokens && std::ranges::equal(a.planes, b.planes, [](auto x, auto y) {
    return std::ranges::equal(x, y);
  });
}

// The planes must stay where they are.
absl::Status Append(const std::string& name, const Geometry& geometry, uint32_t num_tokens,
                    std::vector<std::span<const std::byte>> planes, codec::Contexts& contexts) {
  if (contexts.contexts.empty()) {
    contexts.geometry = geometry;
    for (const PlaneSpec& plane : geometry.planes) {
      contexts.plane_names.push_back(client::PlaneTensorName(plane));
    }
  } else if (geometry != contexts.geometry) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": ", Difference(geometry, contexts.geometry), " as in ", contexts.contexts[0].name));
  }
  contexts.contexts.push_back(
      {.name = name, .num_tokens = num_tokens, .first_token = 0, .planes = std::move(planes)});
  const codec::TrainingContext& added = contexts.contexts.back();
  for (size_t i = 0; i + 1 < contexts.contexts.size(); ++i) {
    if (!SameValues(contexts.contexts[i], added)) continue;
    return WithHint(absl::InvalidArgumentError(absl::StrCat(name, ": holds the same context as ",
                                                            contexts.contexts[i].name)),
                    "give each context once, or a profile is judged by what it has learnt");
  }
  return absl::OkStatus();
}

// Caches name their model, or not.
absl::Status CheckModel(const client::ContextInput& file, const std::string& path,
                        const CalibrateInput& input) {
  for (size_t i = 0; i < input.files.size(); ++i) {
    const std::string& model = input.files[i].model;
    if (model.empty() || file.model.empty() || model == file.model) continue;
    return WithHint(absl::InvalidArgumentError(absl::StrCat(path, ": is of model ", file.model,
                                                            ", and others are of ", model)),
                    "a profile is of one model");
  }
  return absl::OkStatus();
}

std::vector<size_t> FirstPlanes(const Geometry& geometry) {
  std::vector<size_t> first;
  for (size_t i = 0; i < geometry.planes.size(); ++i) {
    if (i == 0 || geometry.planes[i].model_layer != geometry.planes[i - 1].model_layer) {
      first.push_back(i);
    }
  }
  first.push_back(geometry.planes.size());
  return first;
}

}  // namespace

absl::StatusOr<CalibrateInput> ReadContexts(const CalibrateSource& source) {
  CalibrateInput input;
  for (const std::string& path : source.contexts) {
    if (IsTokensFile(path)) {
      ASSIGN_OR_RETURN(client::ContextPlanes stored, LoadStored(source.store, path));
      std::vector<std::span<const std::byte>> planes;
      for (size_t i = 0; i < stored.geometry().planes.size(); ++i) {
        planes.push_back(stored.plane(i));
      }
      RETURN_IF_ERROR(
          Append(path, stored.geometry(), stored.num_tokens(), std::move(planes), input.contexts));
      input.stored.push_back(std::move(stored));
    } else {
      ASSIGN_OR_RETURN(client::ContextInput file, client::ReadContext(path));
      RETURN_IF_ERROR(CheckModel(file, path, input));
      RETURN_IF_ERROR(Append(path, file.geometry, file.num_tokens, file.planes, input.contexts));
      input.files.push_back(std::move(file));
    }
  }
  return input;
}

absl::StatusOr<std::vector<double>> ReadSensitivities(const std::string& path,
                                                      const Geometry& geometry) {
  ASSIGN_OR_RETURN(const std::string text, client::ReadFile(path, kMaxSensitivityBytes));
  const auto refuse = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return refuse("is not JSON, or has a number that JSON cannot hold (NaN, Infinity, 1e400)");
  }
  if (!json.is_object() || !json.contains("kl_per_variance")) {
    return refuse("no JSON object with kl_per_variance");
  }
  const Json& layers = json["kl_per_variance"];
  const std::vector<size_t> first = FirstPlanes(geometry);
  if (!layers.is_array() || layers.size() != first.size() - 1) {
    return refuse(
        absl::StrCat("kl_per_variance must be a list of ", first.size() - 1, " model layers"));
  }
  std::vector<double> values;
  for (size_t l = 0; l < layers.size(); ++l) {
    const size_t count = first[l + 1] - first[l];
    if (!layers[l].is_array() || layers[l].size() != count) {
      return refuse(absl::StrCat("kl_per_variance[", l, "] must be a list of ", count, " numbers"));
    }
    for (const Json& value : layers[l]) {
      if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0) {
        return refuse(absl::StrCat("kl_per_variance[", l, "] has a value that is no number >= 0"));
      }
      values.push_back(value.get<double>());
    }
  }
  return values;
}

absl::StatusOr<std::vector<std::vector<float>>> ReadQueries(const std::string& path,
                                                            const Geometry& geometry) {
  ASSIGN_OR_RETURN(const auto file, client::SafetensorsFile::Open(path));
  std::vector<std::vector<float>> queries(geometry.planes.size());
  for (size_t i = 0; i < queries.size(); ++i) {
    const PlaneSpec& plane = geometry.planes[i];
    if (plane.kind != codec::PlaneKind::kKey) continue;
    const std::string name = absl::StrCat("layers.", plane.model_layer, ".q_cov");
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": no tensor ", name));
    }
    const client::TensorEntry& tensor = found->second;
    const std::vector<uint64_t> wanted = {plane.num_heads, plane.head_dim, plane.head_dim};
    if (tensor.dtype != "F32" || tensor.shape != wanted) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", name, " is not F32 [", wanted[0],
                                                     ", ", wanted[1], ", ", wanted[2], "]"));
    }
    const auto bytes = file.data(tensor);
    queries[i].resize(bytes.size() / sizeof(float));
    std::memcpy(queries[i].data(), bytes.data(), bytes.size());
  }
  return queries;
}

}  // namespace sluice::cli
