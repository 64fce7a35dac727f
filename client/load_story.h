// What a record tells of each chunk: when it was asked for and why, when it came, how it ended.
//
// Pure functions. Times count from the start of the load, -1 is never.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "client/load_record.h"

namespace sluice::client {

struct ChunkStory {
  adapt::TimeUs asked_us = -1;    // its base, for the first time
  std::string_view asked_reason;  // refers to the record
  uint32_t num_asks = 0;
  uint32_t num_refinements = 0;     // of these
  adapt::TimeUs base_here_us = -1;  // all of it
  adapt::TimeUs last_byte_us = -1;  // of any step
  uint64_t bytes = 0;               // that arrived
  int loaded_step = -1;             // in place at the end
  adapt::TimeUs loaded_us = -1;     // since then
  adapt::TimeUs computing_us = -1;  // the engine was told to compute it
  adapt::TimeUs computed_us = -1;   // and had done so
  std::optional<adapt::GiveUpReason> given_up;
  bool final_loaded = false;
  adapt::TimeUs final_us = -1;    // given up or final as loaded
  std::string_view final_reason;  // why it was given up or not refined further
};

// One story per chunk of the spec.
std::vector<ChunkStory> TellChunks(const LoadRecord& record);

// Bytes that were received and are of no loaded chunk's level: refinements that were not finished,
// bases that failed or came too late.
uint64_t WastedBytes(const LoadRecord& record);

// The level that each step reaches, as far as outcomes tell; else the step's number: only a load
// that may not choose begins at another level than 0.
std::vector<codec::Level> LevelsOfSteps(const LoadRecord& record,
                                        const std::vector<ChunkStory>& stories);

}  // namespace sluice::client
