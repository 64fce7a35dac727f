#include "codec/row_tables.h"

#include <algorithm>

namespace sluice::codec {

BaseLookup::BaseLookup(const BaseTable& table) {
  const auto& symbols = table.symbols;
  for (size_t k = 0; k < first.size(); ++k) {
    first[k] = symbols[8].start;
    second[k] = symbols[(k & 4) * 2 + 4].start;
    third[k] = symbols[(k & 6) * 2 + 2].start;
    even[k] = symbols[2 * k].start;
    odd[k] = symbols[2 * k + 1].start;
    end[k] = static_cast<uint16_t>(odd[k] + symbols[2 * k + 1].frequency);
  }
}

RefinementLookup::RefinementLookup(const RefinementTable& table) : one{}, two{} {
  for (size_t context = 0; context < kContexts; ++context) {
    one[context] = table.symbols[context][1].start;
    two[context] = table.symbols[context][2].start;
  }
}

PriceTable::PriceTable(std::span<const std::vector<float>> bits)
    : num_columns_((bits.front().size() + kColumns - 1) / kColumns * kColumns),
      prices_(bits.size() * num_columns_, kNever) {
  for (size_t symbol = 0; symbol < bits.size(); ++symbol) {
    std::copy(bits[symbol].begin(), bits[symbol].end(), prices_.begin() + symbol * num_columns_);
  }
}

}  // namespace sluice::codec
