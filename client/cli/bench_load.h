// Loads contexts many times, several at once, and measures.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/remote_store.h"
#include "codec/chunk_key.h"
#include "codec/profile.h"

namespace sluice::cli {

struct BenchLoad {
  std::shared_ptr<client::RemoteStore> store;
  codec::NamespaceDescriptor descriptor;
  std::vector<std::vector<codec::Digest>> contexts;  // keys of the chunks of each
  uint32_t loads = 16;                               // in all
  uint32_t concurrency = 4;
  absl::Duration slo;
  std::optional<codec::Level> level;
};

struct BenchResult {
  std::vector<double> ms;                    // of each load
  std::map<std::string, uint64_t> outcomes;  // "level 2", "late", ... -> chunks
  uint64_t bytes = 0;
  uint64_t loaded_chunks = 0;
  double wall_s = 0;
};

// REQUIRES: contexts is not empty.
BenchResult RunLoads(const std::shared_ptr<const codec::Profile>& profile, const BenchLoad& bench);

}  // namespace sluice::cli
