// Rows of coefficients, quantised as the encoder does, and what is learnt from them.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "codec/calibrate/class_learning.h"
#include "codec/calibrate/group_basis.h"
#include "codec/calibration.h"

namespace sluice::codec {

// Rows of one chunk each, of many chunks and all groups.
class TrainingRows {
 public:
  // Rows that are kept, about.
  static constexpr size_t kMaxRows = 400'000;

  explicit TrainingRows(int num_levels);

  // Adds all rows of a group in the chunks `spans`. `analysis` is of MakeAnalysis,
  // `normalisation.steps` are the finest.
  absl::Status AddGroup(ChannelReader& reader, const GroupChannels& group,
                        const Dense<float>& analysis, std::span<const TokenSpan> spans,
                        const Normalisation& normalisation);

  // Learns the tables of every layer, and the class that each row mostly has.
  // REQUIRES: `groups` are those that were added, in their order.
  void Learn(size_t max_classes, std::vector<ClassTables>& tables,
             std::span<GroupCalibration> groups) const;

 private:
  struct Group {
    size_t rows = 0;  // of a chunk
    size_t chunks = 0;
  };

  void AddRow(std::span<const float> coefficients);

  std::vector<RowHistograms> layers_;  // rows by group, chunk, row of the group
  std::vector<Group> groups_;
  std::vector<std::vector<int16_t>> values_;  // of one row, by level
};

// Evenly spread, at most `limit` of them and at least one.
std::vector<TokenSpan> Thin(std::span<const TokenSpan> spans, size_t limit);

}  // namespace sluice::codec
