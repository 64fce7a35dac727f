#include "sim/rate_trace.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::sim {

RateTrace::RateTrace(std::vector<double> rates, TimeUs step_us) {
  if (rates.empty()) rates = {0};
  Steps steps;
  steps.step_us = std::max<TimeUs>(step_us, 1);
  steps.period_us = static_cast<TimeUs>(rates.size()) * steps.step_us;
  steps.passed.reserve(rates.size() + 1);
  steps.passed.push_back(0);
  for (double& rate : rates) {
    if (!std::isfinite(rate) || rate < 0) rate = 0;
    steps.passed.push_back(steps.passed.back() + rate * static_cast<double>(steps.step_us) * 1e-6);
  }
  steps.rates = std::move(rates);
  steps_ = std::make_shared<const Steps>(std::move(steps));
}

double RateTrace::RateAt(TimeUs at_us) const {
  const TimeUs within = (start_us_ + std::max<TimeUs>(at_us, 0)) % period_us();
  return steps_->rates[static_cast<size_t>(within / step_us())];
}

double RateTrace::Passed(TimeUs until_us) const {
  until_us = start_us_ + std::max<TimeUs>(until_us, 0);
  const double periods = static_cast<double>(until_us / period_us());
  const TimeUs within = until_us % period_us();
  const size_t step = static_cast<size_t>(within / step_us());
  return periods * steps_->passed.back() + steps_->passed[step] +
         steps_->rates[step] * static_cast<double>(within % step_us()) * 1e-6;
}

double RateTrace::Amount(TimeUs from_us, TimeUs to_us) const {
  return to_us > from_us ? Passed(to_us) - Passed(from_us) : 0;
}

TimeUs RateTrace::TimeOf(double amount, TimeUs from_us) const {
  from_us = std::max<TimeUs>(from_us, 0);
  if (amount <= 0) return from_us;
  const std::vector<double>& passed = steps_->passed;
  const double total = passed.back();
  if (total <= 0) return kNever;
  const double target = Passed(from_us) + amount;
  double periods = std::floor(target / total);
  if (periods * static_cast<double>(period_us()) >= static_cast<double>(kNever)) return kNever;
  double rest = target - periods * total;
  // Nothing passes in the last steps of a period without rate; the end of the one before counts.
  if (rest <= 0 && periods > 0) {
    periods -= 1;
    rest = total;
  }
  const auto after = std::lower_bound(passed.begin() + 1, passed.end() - 1, rest);
  const size_t step = static_cast<size_t>(after - passed.begin()) - 1;
  const double rate = steps_->rates[step];
  const double within = rate > 0 ? (rest - passed[step]) / rate * 1e6 : 0;
  const TimeUs at_us = static_cast<TimeUs>(periods) * period_us() +
                       static_cast<TimeUs>(step) * step_us() +
                       static_cast<TimeUs>(std::ceil(within - 1e-6)) - start_us_;
  return std::max(at_us, from_us);
}

double RateTrace::mean() const {
  return steps_->passed.back() / (static_cast<double>(period_us()) * 1e-6);
}

RateTrace RateTrace::Scaled(double factor) const {
  std::vector<double> rates = steps_->rates;
  for (double& rate : rates) rate *= factor;
  RateTrace scaled(std::move(rates), step_us());
  scaled.start_us_ = start_us_;
  return scaled;
}

RateTrace RateTrace::WithStep(TimeUs step_us) const { return RateTrace(steps_->rates, step_us); }

RateTrace RateTrace::From(TimeUs at_us) const {
  RateTrace later = *this;
  later.start_us_ = ((start_us_ + at_us) % period_us() + period_us()) % period_us();
  return later;
}

RateTrace ConstantRate(double rate) { return RateTrace({rate}, 1000000); }

RateTrace UniformRate(std::mt19937_64& random, double low, double high, TimeUs step_us, size_t n) {
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> rates(n);
  for (double& rate : rates) rate = draw(random);
  return RateTrace(std::move(rates), step_us);
}

RateTrace OnOffRate(std::mt19937_64& random, const OnOff& shape, TimeUs length_us) {
  constexpr TimeUs kStepUs = 10000;
  std::uniform_int_distribution<TimeUs> on(shape.min_on_us, shape.max_on_us);
  std::uniform_int_distribution<TimeUs> off(shape.min_off_us, shape.max_off_us);
  std::vector<double> rates;
  const size_t count = static_cast<size_t>(std::max<TimeUs>(length_us / kStepUs, 1));
  while (rates.size() < count) {
    rates.insert(rates.end(), static_cast<size_t>(on(random) / kStepUs + 1), shape.rate);
    rates.insert(rates.end(), static_cast<size_t>(off(random) / kStepUs + 1),
                 shape.rate * shape.low_share);
  }
  return RateTrace(std::move(rates), kStepUs);
}

RateTrace ChoiceRate(std::mt19937_64& random, const std::vector<double>& choices, double keep,
                     TimeUs step_us, size_t n) {
  std::uniform_int_distribution<size_t> choose(0, choices.size() - 1);
  std::bernoulli_distribution stays(keep);
  std::vector<double> rates;
  for (size_t i = 0; i < n; ++i) {
    rates.push_back(i > 0 && stays(random) ? rates.back() : choices[choose(random)]);
  }
  return RateTrace(std::move(rates), step_us);
}

}  // namespace sluice::sim
