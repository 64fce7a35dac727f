// levels_bench PROFILE CACHE...: what storing all lossy levels costs more than the finest alone.
//
// The finest level alone is what an ideal entropy coder would make of the same integers in one
// layer: of 64 classes with a distribution over all values each, without the limits of real
// tables, every row takes the one that is cheapest, and its distance from the row's usual class is
// coded as segments do it. Classes are learnt from every other chunk and tried on the rest, and the
// other way round. Headers, sinks and the coder's states are counted on both sides.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "client/context_input.h"
#include "client/file_io.h"
#include "codec/byte_block.h"
#include "codec/bytes.h"
#include "codec/encoder.h"
#include "codec/exact_planes.h"
#include "codec/lossy_segment.h"
#include "codec/rans.h"

namespace sluice::codec {
namespace {

constexpr uint32_t kChunkTokens = 256;
constexpr size_t kClasses = 64;
constexpr int kLargest = 255;  // beyond it, a symbol and kEscapeBits
constexpr size_t kSymbols = 2 * kLargest + 2;
constexpr size_t kEscape = kSymbols - 1;
constexpr double kEscapeBits = 12;
constexpr int kRounds = 6;
constexpr double kPrior = 0.02;  // of a symbol in a class, besides its counts

// How often a row has each symbol; rows have few different ones.
using Counts = std::vector<std::pair<uint16_t, uint16_t>>;

struct Row {
  size_t row = 0;  // among those of all groups
  Counts counts;   // empty: all values are zero, and nothing is coded
};

struct Chunk {
  size_t index = 0;
  std::vector<std::vector<Row>> groups;
  double fixed_bytes = 0;  // header, modes, sinks, states of the coder
  double all_levels_bytes = 0;
  double elements = 0;
};

using Prices = std::vector<std::array<float, kClasses>>;  // [symbol][class], bits

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "levels_bench: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

template <typename T>
T OrFail(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status());
  return *std::move(value);
}

Counts CountRow(std::span<const int16_t> values) {
  std::map<uint16_t, uint16_t> counts;
  bool zero = true;
  for (const int16_t value : values) {
    zero &= value == 0;
    const bool escaped = std::abs(value) > kLargest;
    ++counts[static_cast<uint16_t>(escaped ? kEscape : value + kLargest)];
  }
  return zero ? Counts() : Counts(counts.begin(), counts.end());
}

double SinkBytes(const SegmentContext& context, std::span<const std::span<const std::byte>> planes,
                 const GroupCode& code) {
  ByteWriter writer;
  for (size_t i = 0; i < planes.size(); ++i) {
    if (code.planes[i].exact) {
      EncodeExactPlane(context.plane(i), context.num_tokens, planes[i], writer);
    } else if (context.num_sinks() > 0) {
      EncodeExactPlane(context.plane(i), context.num_sinks(), AsBytes(code.planes[i].sinks),
                       writer);
    }
  }
  return static_cast<double>(writer.size());
}

// The integers of a group at the finest level.
GroupCode ReadFinest(const SegmentContext& context, const ChunkHeader& header,
                     std::span<const std::byte> container,
                     std::span<const std::span<const std::byte>> planes) {
  std::vector<std::string> copies;
  for (const auto& plane : planes) copies.emplace_back(plane.size(), '\0');
  std::vector<std::span<std::byte>> out;
  for (std::string& copy : copies) out.push_back(std::as_writable_bytes(std::span(copy)));
  GroupCode code;
  for (int layer = 0; layer < context.profile->num_levels(); ++layer) {
    const auto segment = container.subspan(header.SegmentOffset(layer, context.group),
                                           header.layers[layer].segments[context.group].bytes);
    const absl::Status status = layer == 0 ? ReadBaseSegment(context, segment, out, code)
                                           : ReadRefinementSegment(context, segment, code);
    if (!status.ok()) Fail(status);
  }
  return code;
}

Chunk ReadChunk(const Profile& profile, const client::ContextInput& input, uint32_t start,
                uint32_t num_tokens, size_t index) {
  const client::ChunkPlanes planes(input, start, num_tokens);
  const EncodedChunk encoded =
      OrFail(EncodeChunk(profile, {.start_token = start}, planes.planes(), num_tokens, {}));
  const auto container = AsBytes(encoded.container);
  const ChunkHeader header = OrFail(ParseChunkHeader(container));
  Chunk chunk;
  chunk.index = index;
  chunk.all_levels_bytes = static_cast<double>(container.size());
  chunk.elements = static_cast<double>(profile.geometry().elements_per_token() * num_tokens);
  chunk.fixed_bytes = static_cast<double>(ChunkHeader::HeaderBytes(1, header.num_groups()));
  size_t first_row = 0;
  for (size_t g = 0; g < header.num_groups(); ++g) {
    const SegmentContext context{&profile, g, start, num_tokens};
    const auto of_group =
        std::span(planes.planes()).subspan(context.spec().first_plane, context.spec().num_planes);
    const GroupCode code = ReadFinest(context, header, container, of_group);
    chunk.fixed_bytes += SinkBytes(context, of_group, code) + 1 +
                         static_cast<double>(of_group.size()) + 4 + 4 + 8 + kRansStateBytes;
    std::vector<Row>& rows = chunk.groups.emplace_back();
    for (size_t row = 0; row < code.classes.size(); ++row) {
      rows.push_back({first_row + row,
                      CountRow(std::span(code.values).subspan(row * num_tokens, num_tokens))});
    }
    first_row += profile.coded_channels(g);
  }
  return chunk;
}

double Spread(const Counts& counts) {
  double sum = 0;
  double total = 0;
  for (const auto& [symbol, count] : counts) {
    sum += count * std::abs(static_cast<double>(symbol) - kLargest);
    total += count;
  }
  return sum / total;
}

// The cheapest class, with a price for its distance from `usual` unless that is negative.
size_t Cheapest(const Prices& prices, const Counts& counts, int usual, double& bits) {
  std::array<float, kClasses> sums = {};
  for (const auto& [symbol, count] : counts) {
    for (size_t c = 0; c < kClasses; ++c) sums[c] += prices[symbol][c] * count;
  }
  size_t best = 0;
  double best_cost = INFINITY;
  for (size_t c = 0; c < kClasses; ++c) {
    const double distance = std::abs(static_cast<double>(c + 1) - usual);
    const double cost = sums[c] + (usual < 0 ? 0 : 1.5 * std::min(std::log2(1 + distance), 6.0));
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = c;
  }
  bits = sums[best];
  return best;
}

class FinestCoder {
 public:
  // Learns from the chunks whose index is of this parity.
  FinestCoder(const std::vector<Chunk>& chunks, size_t parity);

  double Bytes(const Chunk& chunk) const;

 private:
  std::vector<std::array<double, kSymbols>> StartAtQuantiles(std::vector<const Row*> rows) const;
  void SetPrices(const std::vector<std::array<double, kSymbols>>& counts);

  Prices prices_;
  std::vector<int> usual_;  // class of each row; 0 if it is mostly all zero
};

std::vector<std::array<double, kSymbols>> FinestCoder::StartAtQuantiles(
    std::vector<const Row*> rows) const {
  std::ranges::sort(rows, {}, [](const Row* row) { return Spread(row->counts); });
  std::vector<std::array<double, kSymbols>> counts(kClasses);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const auto& [symbol, count] : rows[i]->counts) {
      counts[i * kClasses / rows.size()][symbol] += count;
    }
  }
  return counts;
}

void FinestCoder::SetPrices(const std::vector<std::array<double, kSymbols>>& counts) {
  prices_.assign(kSymbols, {});
  for (size_t c = 0; c < kClasses; ++c) {
    double total = 0;
    for (const double count : counts[c]) total += count + kPrior;
    for (size_t s = 0; s < kSymbols; ++s) {
      prices_[s][c] = static_cast<float>(std::log2(total / (counts[c][s] + kPrior)) +
                                         (s == kEscape ? kEscapeBits : 0));
    }
  }
}

FinestCoder::FinestCoder(const std::vector<Chunk>& chunks, size_t parity) {
  std::vector<const Row*> rows;
  std::vector<std::array<uint32_t, kClasses + 1>> chosen;
  for (const Chunk& chunk : chunks) {
    for (const auto& group : chunk.groups) {
      for (const Row& row : group) {
        if (chosen.size() <= row.row) chosen.resize(row.row + 1);
        if (chunk.index % 2 != parity) continue;
        if (row.counts.empty()) ++chosen[row.row][0];
        if (!row.counts.empty()) rows.push_back(&row);
      }
    }
  }
  SetPrices(StartAtQuantiles(rows));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::array<double, kSymbols>> counts(kClasses);
    for (const Row* row : rows) {
      double bits = 0;
      const size_t best = Cheapest(prices_, row->counts, -1, bits);
      for (const auto& [symbol, count] : row->counts) counts[best][symbol] += count;
      if (round + 1 == kRounds) ++chosen[row->row][best + 1];
    }
    if (round + 1 < kRounds) SetPrices(counts);
  }
  for (const auto& of_row : chosen) {
    usual_.push_back(static_cast<int>(std::ranges::max_element(of_row) - of_row.begin()));
  }
}

double FinestCoder::Bytes(const Chunk& chunk) const {
  double bytes = chunk.fixed_bytes;
  for (const auto& group : chunk.groups) {
    std::vector<std::byte> distances;
    double bits = 0;
    for (const Row& row : group) {
      size_t row_class = 0;
      if (!row.counts.empty()) {
        double of_row = 0;
        row_class = Cheapest(prices_, row.counts, usual_[row.row], of_row) + 1;
        bits += of_row;
      }
      distances.push_back(static_cast<std::byte>(row_class - usual_[row.row]));
    }
    ByteWriter writer;
    if (!distances.empty()) EncodeByteBlock(distances, writer);
    bytes += bits / 8 + static_cast<double>(writer.size());
  }
  return bytes;
}

int Run(const std::string& profile_path, std::span<char*> caches) {
  const Profile profile = OrFail(Profile::Parse(OrFail(client::ReadFile(profile_path))));
  if (profile.calibration() == nullptr) Fail(absl::InvalidArgumentError("not calibrated"));
  std::vector<Chunk> chunks;
  for (const char* path : caches) {
    const client::ContextInput input = OrFail(client::ReadContext(path));
    for (uint32_t start = 0; start < input.num_tokens; start += kChunkTokens) {
      const uint32_t num_tokens = std::min(kChunkTokens, input.num_tokens - start);
      chunks.push_back(ReadChunk(profile, input, start, num_tokens, chunks.size()));
    }
  }
  const std::array<FinestCoder, 2> coders = {FinestCoder(chunks, 1), FinestCoder(chunks, 0)};
  double all = 0;
  double finest = 0;
  double elements = 0;
  for (const Chunk& chunk : chunks) {
    all += chunk.all_levels_bytes;
    finest += coders[chunk.index % 2].Bytes(chunk);
    elements += chunk.elements;
  }
  std::printf(
      "{\"chunks\": %zu, \"all_levels_bits\": %.4f, \"finest_alone_bits\": %.4f, "
      "\"overhead_percent\": %.2f}\n",
      chunks.size(), 8 * all / elements, 8 * finest / elements, 100 * (all / finest - 1));
  return 0;
}

}  // namespace
}  // namespace sluice::codec

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s PROFILE CACHE...\n", argv[0]);
    return 2;
  }
  return sluice::codec::Run(argv[1], std::span(argv + 2, static_cast<size_t>(argc - 2)));
}
