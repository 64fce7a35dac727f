// What `inspect` finds out about a file's bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/json.h"
#include "client/cli/rate_note.h"
#include "codec/container.h"

namespace sluice::cli {

// Bytes that each level needs, header included, in the order of levels.
using LevelBytes = std::map<codec::Level, uint64_t>;

struct InspectedChunk {
  size_t index = 0;
  uint32_t start_token = 0;
  uint32_t num_tokens = 0;
  size_t num_groups = 0;
  uint64_t bytes = 0;
  uint64_t elements = 0;  // 0 if the geometry is not known
  LevelBytes level_bytes;
  codec::ChunkHeader header;  // empty if its own bytes are damaged
  std::string fault;          // what is damaged; empty if nothing is
  bool unusual_rate = false;  // see codec/rate_check.h
};

struct InspectReport {
  std::string path;
  std::string kind;  // "context", "chunk" or "profile"
  uint64_t file_bytes = 0;
  uint64_t elements = 0;  // of all chunks that are intact
  LevelBytes level_bytes;
  std::vector<InspectedChunk> chunks;
  std::vector<std::string> faults;
  RateSummary rates;
  std::vector<std::pair<std::string, std::string>> facts;  // about the file, for people
  Json details;                                            // the same, for machines
};

// Recognises the kind of file and verifies it. InvalidArgument if it is none of ours, DataLoss if
// it is damaged so that its chunks cannot be told apart; damaged chunks are reported as faults.
absl::StatusOr<InspectReport> InspectBytes(const std::string& bytes);

Json ToJson(const InspectReport& report);

}  // namespace sluice::cli
