#include "codec/calibrate/class_learning.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "codec/frequencies.h"
#include "codec/row_coding.h"

namespace sluice::codec {
namespace {

constexpr int kIterations = 12;
// Weight of a count beside the one that every symbol gets, so that no frequency is 0.
constexpr uint64_t kCountWeight = 64;

// Which parts of a histogram are distributions of their own.
size_t PartWidth(bool base) { return base ? kBaseCounts : kRefinementSymbols; }

using Sums = std::vector<uint64_t>;

std::vector<uint16_t> Scale(std::span<const uint64_t> counts) {
  std::vector<uint64_t> weighted(counts.begin(), counts.end());
  for (uint64_t& count : weighted) count = count * kCountWeight + 1;
  return ScaleToFrequencies(weighted);
}

std::vector<uint16_t> Frequencies(const Sums& sums, bool base) {
  std::vector<uint16_t> all;
  const size_t width = PartWidth(base);
  for (size_t part = 0; part < sums.size(); part += width) {
    const auto frequencies = Scale(std::span(sums).subspan(part, width));
    all.insert(all.end(), frequencies.begin(), frequencies.end());
  }
  return all;
}

// Mean size of a row's symbols: of values, or of refinements.
double MeanSize(std::span<const uint16_t> counts, bool base) {
  double sizes = 0, total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const int size = base ? std::abs(static_cast<int>(i) - kBaseZero)
                          : std::abs(static_cast<int>(i % kRefinementSymbols) - 1);
    sizes += size * static_cast<double>(counts[i]);
    total += counts[i];
  }
  return total > 0 ? sizes / total : 0;
}

// Prices in bits, [symbol][class], of classes with these sums.
std::vector<std::vector<float>> PricesOf(const std::vector<Sums>& classes, bool base) {
  std::vector<std::vector<float>> prices(classes[0].size());
  for (const Sums& sums : classes) {
    const std::vector<uint16_t> frequencies = Frequencies(sums, base);
    for (size_t i = 0; i < frequencies.size(); ++i) {
      prices[i].push_back(kProbBits - std::log2(static_cast<float>(frequencies[i])));
    }
  }
  return prices;
}

size_t Cheapest(std::span<const uint16_t> counts, const std::vector<std::vector<float>>& prices) {
  std::array<float, kMaxClasses> cost = {};
  const size_t num_classes = prices[0].size();
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const auto count = static_cast<float>(counts[i]);
    const float* price = prices[i].data();
    for (size_t c = 0; c < num_classes; ++c) cost[c] += count * price[c];
  }
  return std::min_element(cost.begin(), cost.begin() + num_classes) - cost.begin();
}

// Sums of the rows of each class; classes without rows are left out.
std::vector<Sums> SumByClass(const RowHistograms& histograms, std::span<const size_t> rows,
                             std::span<const size_t> classes, size_t num_classes) {
  std::vector<Sums> sums(num_classes, Sums(histograms.width));
  std::vector<size_t> members(num_classes);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto counts = histograms.row(rows[i]);
    for (size_t s = 0; s < counts.size(); ++s) sums[classes[i]][s] += counts[s];
    ++members[classes[i]];
  }
  size_t kept = 0;
  for (size_t c = 0; c < num_classes; ++c) {
    if (members[c] > 0) sums[kept++] = sums[c];
  }
  sums.resize(kept);
  return sums;
}

// Share of symbols that are zero, in the order of falling share.
double ZeroShare(const Sums& sums, bool base) {
  double zeros = 0, total = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const bool zero = base ? i == kBaseZero : i % kRefinementSymbols == 1;
    zeros += zero ? static_cast<double>(sums[i]) : 0;
    total += static_cast<double>(sums[i]);
  }
  return zeros / total;
}

// k-means where the distance of a row from a class is what coding it costs.
std::vector<Sums> Cluster(const RowHistograms& histograms, std::span<const size_t> rows,
                          size_t max_classes) {
  if (rows.empty()) return {Sums(histograms.width)};  // any table will do
  // The first classes: runs of equal length among the rows sorted by size.
  std::vector<double> sizes(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    sizes[i] = MeanSize(histograms.row(rows[i]), histograms.base);
  }
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return sizes[i]; });
  std::vector<size_t> classes(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) classes[order[i]] = i * max_classes / rows.size();

  std::vector<Sums> sums = SumByClass(histograms, rows, classes, max_classes);
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    const auto prices = PricesOf(sums, histograms.base);
    for (size_t i = 0; i < rows.size(); ++i) {
      classes[i] = Cheapest(histograms.row(rows[i]), prices);
    }
    sums = SumByClass(histograms, rows, classes, sums.size());
  }
  std::ranges::stable_sort(sums, std::greater<>(), [&](const Sums& class_sums) {
    return ZeroShare(class_sums, histograms.base);
  });
  return sums;
}

ClassTables MakeTables(const std::vector<Sums>& classes, bool base) {
  if (base) {
    std::vector<BaseFrequencies> all(classes.size());
    for (size_t c = 0; c < classes.size(); ++c) {
      std::ranges::copy(Frequencies(classes[c], true), all[c].begin());
    }
    return MakeBaseTables(all, std::vector<CentroidShift>(all.size()));
  }
  std::vector<RefinementFrequencies> all(classes.size());
  for (size_t c = 0; c < classes.size(); ++c) {
    const auto frequencies = Frequencies(classes[c], false);
    for (size_t i = 0; i < frequencies.size(); ++i) {
      all[c][i / kRefinementSymbols][i % kRefinementSymbols] = frequencies[i];
    }
  }
  return MakeRefinementTables(all);
}

}  // namespace

bool RowHistograms::IsZero(size_t i) const {
  const auto counts = row(i);
  for (size_t s = 0; s < width; ++s) {
    const bool zero = base ? s == kBaseZero : s % kRefinementSymbols == 1;
    if (!zero && counts[s] > 0) return false;
  }
  return true;
}

void AppendHistogram(std::span<const int16_t> values, RowHistograms& histograms) {
  const size_t first = histograms.counts.size();
  histograms.counts.resize(first + histograms.width);
  uint16_t* counts = histograms.counts.data() + first;
  if (histograms.base) {
    for (int value : values)
      ++counts[std::abs(value) > kBaseZero ? kEscapeSymbol : value + kBaseZero];
    return;
  }
  for (int16_t value : values) {
    const int parent = ParentOf(value);
    const int context = std::clamp(parent, -kContextLimit, kContextLimit) + kContextLimit;
    ++counts[context * kRefinementSymbols + value - 3 * parent + 1];
  }
}

LearntTables LearnTables(const RowHistograms& histograms, size_t max_classes) {
  std::vector<size_t> rows;
  for (size_t i = 0; i < histograms.rows(); ++i) {
    if (!histograms.IsZero(i)) rows.push_back(i);
  }
  const std::vector<Sums> classes = Cluster(histograms, rows, max_classes);
  const auto prices = PricesOf(classes, histograms.base);
  LearntTables learnt;
  learnt.classes.resize(histograms.rows());
  for (size_t row : rows) {
    learnt.classes[row] = static_cast<uint8_t>(Cheapest(histograms.row(row), prices) + 1);
  }
  learnt.tables = MakeTables(classes, histograms.base);
  return learnt;
}

}  // namespace sluice::codec
