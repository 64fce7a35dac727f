#include "client/manifest_check.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::client {
namespace {

absl::Status Bad(const std::string& field, uint64_t value) {
  return absl::DataLossError(absl::StrCat("manifest: ", field, " is ", value));
}

absl::StatusOr<ChunkManifest::Layer> CheckedLayer(const v1::LayerManifest& message, int index) {
  const bool lossy = message.level() == static_cast<uint32_t>(index);
  if (message.level() != codec::kLossless && (!lossy || index >= codec::kMaxLossyLevels)) {
    return Bad(absl::StrCat("level of layer ", index), message.level());
  }
  if (!std::isfinite(message.mean_error()) || message.mean_error() < 0) {
    return absl::DataLossError(
        absl::StrCat("manifest: mean_error of layer ", index, " is no size of an error"));
  }
  ChunkManifest::Layer layer;
  layer.level = static_cast<codec::Level>(message.level());
  layer.mean_error = message.mean_error();
  layer.group_bytes.assign(message.group_bytes().begin(), message.group_bytes().end());
  for (const uint32_t bytes : layer.group_bytes) {
    if (bytes > codec::kMaxSegmentBytes) return Bad("group_bytes", bytes);
    layer.bytes += bytes;
  }
  return layer;
}

}  // namespace

absl::StatusOr<ChunkManifest> CheckedManifest(const v1::ChunkManifest& message) {
  ChunkManifest manifest;
  if (!message.found()) return manifest;
  if (message.num_tokens() == 0 ||
      message.num_tokens() > codec::NamespaceDescriptor::kMaxChunkTokens) {
    return Bad("num_tokens", message.num_tokens());
  }
  if (message.header_bytes() == 0 || message.header_bytes() > codec::kMaxHeaderBytes) {
    return Bad("header_bytes", message.header_bytes());
  }
  if (message.layers().empty() || message.layers_size() > codec::kMaxLossyLevels + 1) {
    return Bad("number of layers", message.layers_size());
  }
  manifest.found = true;
  manifest.start_token = message.start_token();
  manifest.num_tokens = message.num_tokens();
  manifest.header_bytes = message.header_bytes();
  manifest.total_bytes = message.header_bytes();
  const int num_groups = message.layers(0).group_bytes_size();
  if (num_groups == 0 || num_groups > static_cast<int>(codec::Profile::kMaxGroups)) {
    return Bad("number of groups", num_groups);
  }
  for (int i = 0; i < message.layers_size(); ++i) {
    if (message.layers(i).group_bytes_size() != num_groups) {
      return Bad(absl::StrCat("number of groups of layer ", i),
                 message.layers(i).group_bytes_size());
    }
    if (i > 0 && manifest.layers.back().level == codec::kLossless) {
      return Bad("level before the last layer", codec::kLossless);
    }
    ASSIGN_OR_RETURN(ChunkManifest::Layer layer, CheckedLayer(message.layers(i), i));
    manifest.total_bytes += layer.bytes;
    manifest.layers.push_back(std::move(layer));
  }
  if (manifest.total_bytes != message.total_bytes()) {
    return Bad("total_bytes", message.total_bytes());
  }
  return manifest;
}

}  // namespace sluice::client
