#include "client/cli/output_metadata.h"

#include <algorithm>
#include <string>

#include "client/context_input.h"
#include "nlohmann/json.hpp"

namespace sluice::cli {

void CompleteMetadata(const codec::NamespaceDescriptor& descriptor, const codec::Geometry& geometry,
                      Metadata& metadata) {
  metadata.emplace("model", descriptor.model);
  if (!descriptor.revision.empty()) metadata.emplace("revision", descriptor.revision);
  if (!descriptor.adapter.empty()) metadata.emplace("adapter", descriptor.adapter);
  const bool rotary_known = std::ranges::any_of(
      metadata, [](const auto& entry) { return entry.first.find("rope_") != std::string::npos; });
  if (!rotary_known) metadata.merge(client::RotaryMetadata(geometry));
}

void DescribeTokens(std::span<const uint32_t> token_ids, std::span<const client::TokenRange> ranges,
                    std::span<const uint32_t> missing_chunks, Metadata& metadata) {
  std::vector<uint32_t> kept;
  nlohmann::json range_list = nlohmann::json::array();
  for (const client::TokenRange& range : ranges) {
    range_list.push_back({range.begin, range.end});
    if (range.end > token_ids.size()) continue;
    kept.insert(kept.end(), token_ids.begin() + range.begin, token_ids.begin() + range.end);
  }
  if (!token_ids.empty()) metadata["token_ids"] = client::FormatTokenIds(kept);
  metadata["sluice_token_ranges"] = range_list.dump();
  metadata["sluice_missing_chunks"] =
      nlohmann::json(std::vector<uint32_t>(missing_chunks.begin(), missing_chunks.end())).dump();
}

void DescribeLevels(std::span<const codec::Level> levels, Metadata& metadata) {
  nlohmann::json names = nlohmann::json::array();
  for (codec::Level level : levels) names.push_back(codec::LevelName(level));
  metadata["sluice_level"] = names.dump();
}

}  // namespace sluice::cli
