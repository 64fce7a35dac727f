#include "client/prefill_costs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/file_io.h"
#include "client/log_text.h"
#include "spdlog/spdlog.h"

namespace sluice::client {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

// Throws Json::exception when something is not as it should be.
adapt::PrefillCost::State ToState(const Json& json) {
  adapt::PrefillCost::State state;
  for (const Json& shape : json.at("shapes")) {
    state.shapes.push_back(
        {shape.at(0).get<uint32_t>(), shape.at(1).get<uint32_t>(), shape.at(2).get<double>()});
  }
  for (const Json& ratio : json.at("ratios")) state.ratios.push_back(ratio.get<double>());
  return state;
}

Json ToJson(const adapt::PrefillCost::State& state) {
  Json shapes = Json::array();
  for (const adapt::PrefillCost::Shape& shape : state.shapes) {
    shapes.push_back({shape.new_tokens, shape.context_tokens, shape.us});
  }
  return {{"shapes", std::move(shapes)}, {"ratios", state.ratios}};
}

}  // namespace

PrefillCosts::PrefillCosts(std::string path) : path_(std::move(path)) {
  absl::MutexLock lock(&mutex_);
  if (!path_.empty()) Read();
}

void PrefillCosts::Read() {
  const absl::StatusOr<std::string> text = ReadFile(path_, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return;
  const std::string error = text.ok() ? Restore(*text) : std::string(text.status().message());
  if (error.empty()) return;
  models_.clear();
  spdlog::warn("event=prefill_costs_unreadable path={} error={}", Quoted(path_), Quoted(error));
}

std::string PrefillCosts::Restore(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "not a JSON object";
  if (json.value("version", Json()) != kVersion) return absl::StrCat("not of version ", kVersion);
  try {
    for (const auto& [name, model] : json.at("models").items()) {
      if (models_.size() < kMaxModels) models_[name].cost.Restore(ToState(model));
    }
  } catch (const Json::exception&) {
    return "models are missing, or one without lists of shapes and ratios";
  }
  return "";
}

void PrefillCosts::Report(const std::string& model, const std::vector<Timing>& timings,
                          absl::Time now) {
  bool due = false;
  {
    absl::MutexLock lock(&mutex_);
    if (!models_.contains(model) && models_.size() >= kMaxModels) {
      models_.erase(std::ranges::min_element(models_, {},
                                             [](const auto& entry) { return entry.second.used; }));
    }
    Model& entry = models_[model];
    entry.used = ++reports_;
    for (const Timing& timing : timings) {
      entry.cost.OnMeasured(timing.new_tokens, timing.context_tokens, timing.us);
    }
    unsaved_ = true;
    due = now - saved_at_ >= kSaveEvery;
    if (due) saved_at_ = now;
  }
  if (due) Save().IgnoreError();
}

PrefillCosts::Forecast PrefillCosts::Predict(const std::string& model, uint32_t num_chunks,
                                             uint32_t chunk_tokens, uint32_t tail_tokens) const {
  Forecast forecast;
  absl::MutexLock lock(&mutex_);
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second.cost.known()) return forecast;
  const adapt::PrefillCost& cost = found->second.cost;
  for (uint32_t i = 0; i < num_chunks; ++i) {
    forecast.chunk_us.push_back(cost.Forecast(chunk_tokens, i * chunk_tokens));
  }
  forecast.tail_us = cost.Forecast(tail_tokens, num_chunks * chunk_tokens);
  return forecast;
}

adapt::ComputePace PrefillCosts::Pace(const std::string& model) const {
  absl::MutexLock lock(&mutex_);
  const auto found = models_.find(model);
  if (found == models_.end()) return {};
  return {found->second.cost.scale(), found->second.cost.high_scale()};
}

absl::Status PrefillCosts::Save() {
  if (path_.empty()) return absl::OkStatus();
  std::string text;
  {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(unsaved_, false)) return absl::OkStatus();
    text = Text();
  }
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  const absl::Status status = WriteFile(path_, std::span(&part, 1));
  if (!status.ok()) {
    spdlog::warn("event=prefill_costs_not_saved path={} error={}", Quoted(path_),
                 Quoted(std::string(status.message())));
  }
  return status;
}

std::string PrefillCosts::Text() const {
  Json models = Json::object();
  for (const auto& [name, model] : models_) models[name] = ToJson(model.cost.state());
  return Json{{"version", kVersion}, {"models", std::move(models)}}.dump(
      1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::client
