#include "codec/rotary.h"

#include <algorithm>
#include <cmath>

namespace sluice::codec {
namespace {

// Angles grow by addition theorems within a run; each run starts anew, so that rounding errors stay
// below 1e-13.
constexpr size_t kRunTokens = 256;

// Calls visit(pair, token, cosine, sine) for all angles of a table. Pairs are independent of each
// other, so that the compiler can turn several at a time.
template <typename Visit>
void ForEachAngle(const RotaryTable& table, uint32_t start_token, size_t num_tokens, Visit visit) {
  const size_t num_pairs = table.inverse_frequencies.size();
  std::vector<double> numbers(4 * num_pairs);
  double* const step_cosines = numbers.data();
  double* const step_sines = step_cosines + num_pairs;
  double* const cosines = step_sines + num_pairs;
  double* const sines = cosines + num_pairs;
  for (size_t pair = 0; pair < num_pairs; ++pair) {
    step_cosines[pair] = std::cos(table.inverse_frequencies[pair]);
    step_sines[pair] = std::sin(table.inverse_frequencies[pair]);
  }
  for (size_t t = 0; t < num_tokens; ++t) {
    if (t % kRunTokens == 0) {
      for (size_t pair = 0; pair < num_pairs; ++pair) {
        // The C library reduces large angles exactly.
        const double angle = (static_cast<double>(start_token) + static_cast<double>(t)) *
                             table.inverse_frequencies[pair];
        cosines[pair] = std::cos(angle);
        sines[pair] = std::sin(angle);
      }
    }
    for (size_t pair = 0; pair < num_pairs; ++pair) {
      const double cosine = cosines[pair];
      const double sine = sines[pair];
      visit(pair, t, static_cast<float>(cosine), static_cast<float>(sine));
      cosines[pair] = cosine * step_cosines[pair] - sine * step_sines[pair];
      sines[pair] = sine * step_cosines[pair] + cosine * step_sines[pair];
    }
  }
}

}  // namespace

Rotation::Rotation(const RotaryTable& table, uint32_t start_token, uint32_t num_tokens)
    : layout_(table.layout),
      first_dim_(table.first_dim),
      num_pairs_(table.inverse_frequencies.size()),
      num_tokens_(num_tokens),
      cosines_(num_pairs_ * num_tokens),
      sines_(num_pairs_ * num_tokens) {
  ForEachAngle(table, start_token, num_tokens, [this](size_t pair, size_t t, float c, float s) {
    cosines_[pair * num_tokens_ + t] = c;
    sines_[pair * num_tokens_ + t] = s;
  });
}

TokenRotation::TokenRotation(const RotaryTable& table, uint32_t start_token, uint32_t num_tokens)
    : layout_(table.layout),
      first_dim_(table.first_dim),
      num_pairs_(table.inverse_frequencies.size()),
      num_tokens_(num_tokens),
      cosines_(num_pairs_ * num_tokens),
      sines_(num_pairs_ * num_tokens) {
  ForEachAngle(table, start_token, num_tokens, [this](size_t pair, size_t t, float c, float s) {
    cosines_[t * num_pairs_ + pair] = c;
    sines_[t * num_pairs_ + pair] = s;
  });
}

void Rotation::Rotate(std::span<float> rows) const { Turn(rows, 1); }

void Rotation::Unrotate(std::span<float> rows) const { Turn(rows, -1); }

void Rotation::Turn(std::span<float> rows, float direction) const {
  const bool half = layout_ == RotaryLayout::kHalf;
  for (size_t pair = 0; pair < num_pairs_; ++pair) {
    const size_t first = first_dim_ + (half ? pair : 2 * pair);
    const size_t second = first + (half ? num_pairs_ : 1);
    float* __restrict x = rows.data() + first * num_tokens_;
    float* __restrict y = rows.data() + second * num_tokens_;
    const float* __restrict cosine = cosines_.data() + pair * num_tokens_;
    const float* __restrict sine = sines_.data() + pair * num_tokens_;
    for (size_t t = 0; t < num_tokens_; ++t) {
      const float s = sine[t] * direction;
      const float turned = x[t] * cosine[t] - y[t] * s;
      y[t] = y[t] * cosine[t] + x[t] * s;
      x[t] = turned;
    }
  }
}

}  // namespace sluice::codec
