#include "codec/calibrate/training_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "codec/quantize.h"
#include "codec/row_coding.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

uint8_t Median(std::vector<uint8_t>& classes) {
  const auto middle = classes.begin() + (classes.size() - 1) / 2;
  std::nth_element(classes.begin(), middle, classes.end());
  return *middle;
}

}  // namespace

TrainingRows::TrainingRows(int num_levels) : values_(num_levels) {
  for (int layer = 0; layer < num_levels; ++layer) layers_.emplace_back(layer == 0);
}

void TrainingRows::AddRow(std::span<const float> coefficients) {
  const size_t finest = values_.size() - 1;
  const float limit = kMaxValue;
  values_[finest].resize(coefficients.size());
  std::ranges::transform(coefficients, values_[finest].begin(), [=](float coefficient) {
    return static_cast<int16_t>(std::nearbyint(std::clamp(coefficient, -limit, limit)));
  });
  for (size_t level = finest; level > 0; --level) {
    values_[level - 1].resize(coefficients.size());
    std::ranges::transform(values_[level], values_[level - 1].begin(), ParentOf);
  }
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    AppendHistogram(values_[layer], layers_[layer]);
  }
}

absl::Status TrainingRows::AddGroup(ChannelReader& reader, const GroupChannels& group,
                                    const Dense<float>& analysis, std::span<const TokenSpan> spans,
                                    const Normalisation& normalisation) {
  groups_.push_back({.rows = group.count, .chunks = spans.size()});
  Dense<float> y, coefficients;
  for (const TokenSpan& span : spans) {
    RETURN_IF_ERROR(ReadNormalised(reader, group, span, normalisation.sink_tokens,
                                   normalisation.means, normalisation.steps, y));
    if (coefficients.columns != y.columns) coefficients = Dense<float>(y.rows, y.columns);
    Multiply(analysis, y, coefficients);
    for (size_t row = 0; row < coefficients.rows; ++row) AddRow(coefficients.row(row));
  }
  return absl::OkStatus();
}

void TrainingRows::Learn(size_t max_classes, std::vector<ClassTables>& tables,
                         std::span<GroupCalibration> groups) const {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    LearntTables learnt = LearnTables(layers_[layer], max_classes);
    tables.push_back(std::move(learnt.tables));
    size_t first = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      std::vector<uint8_t>& usual = groups[g].classes.emplace_back();
      std::vector<uint8_t> classes(groups_[g].chunks);
      for (size_t row = 0; row < groups_[g].rows; ++row) {
        for (size_t chunk = 0; chunk < classes.size(); ++chunk) {
          classes[chunk] = learnt.classes[first + chunk * groups_[g].rows + row];
        }
        usual.push_back(Median(classes));
      }
      first += groups_[g].rows * groups_[g].chunks;
    }
  }
}

std::vector<TokenSpan> Thin(std::span<const TokenSpan> spans, size_t limit) {
  const size_t kept = std::clamp<size_t>(limit, 1, spans.size());
  std::vector<TokenSpan> result;
  for (size_t i = 0; i < kept; ++i)
    result.push_back(spans[(2 * i + 1) * spans.size() / (2 * kept)]);
  return result;
}

}  // namespace sluice::codec
