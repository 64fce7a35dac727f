#include "tests/sim/workload.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/rate_parse.h"

namespace sluice::sim {
namespace {

constexpr double kMeans[] = {0.5 * kGbit, 1 * kGbit, 2 * kGbit, 5 * kGbit};
constexpr TimeUs kSecond = 1000000;

std::string SetOf(const std::string& name) {
  for (const char* set : {"cachegen", "hsdpa", "puffer", "mahimahi"}) {
    if (absl::StartsWith(name, set)) return set;
  }
  if (absl::StartsWith(name, "fcc") || absl::StartsWith(name, "oboe")) return "fcc+oboe";
  return absl::StrContains(name, "5g") ? "5g" : "other";
}

}  // namespace

std::vector<NamedLink> GeneratedLinks(uint64_t seed, int copies) {
  std::mt19937_64 random(seed);
  std::vector<NamedLink> links;
  for (const double mean : kMeans) {
    const auto add = [&](const char* set, const RateTrace& rate) {
      links.push_back({set, absl::StrCat(set, " ", links.size()), rate.Scaled(mean / rate.mean())});
    };
    add("const", ConstantRate(1));
    for (int copy = 0; copy < copies; ++copy) {
      add("iid", UniformRate(random, 0.1, 10, kSecond / 10, 600));
      add("stall",
          OnOffRate(random, {1, 0.02, kSecond / 2, 3 * kSecond, kSecond / 5, 4 * kSecond / 5},
                    60 * kSecond));
      add("bucket", OnOffRate(random, {10, 0.1, kSecond / 4, kSecond, kSecond / 2, 3 * kSecond},
                              60 * kSecond));
    }
  }
  return links;
}

std::vector<NamedLink> RecordedLinks(const std::string& folder) {
  std::vector<NamedLink> links;
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    absl::StatusOr<std::vector<RateTrace>> traces = ParseRates(text.str(), TraceFormat::kValues);
    if (!traces.ok()) {
      std::cerr << path.filename() << ": " << traces.status() << "\n";
      continue;
    }
    const std::string name = path.stem();
    for (const RateTrace& trace : *traces) {
      const double mean = kMeans[links.size() % std::size(kMeans)];
      if (SetOf(name) == "cachegen") {  // as it is, a value each 0.2 s
        links.push_back({SetOf(name), name, trace.WithStep(kSecond / 5)});
      } else if (trace.mean() > 0) {
        const TimeUs step_us = trace.step_us() == kSecond ? kSecond / 10 : trace.step_us();
        links.push_back({SetOf(name), name, trace.WithStep(step_us).Scaled(mean / trace.mean())});
      }
    }
  }
  return links;
}

std::string TraceFolder() {
  const char* folder = std::getenv("SLUICE_TRACES");
  return folder != nullptr ? folder : SLUICE_TRACES;
}

std::vector<NamedLink> AllLinks(uint64_t seed) {
  std::vector<NamedLink> links = GeneratedLinks(seed, 3);
  const std::vector<NamedLink> recorded = RecordedLinks(TraceFolder());
  if (recorded.empty()) std::cout << "No recorded traces: set SLUICE_TRACES to their folder.\n";
  links.insert(links.end(), recorded.begin(), recorded.end());
  return links;
}

std::vector<Request> Requests(uint64_t seed, int count) {
  constexpr TimeUs kSlos[] = {kSecond / 4, kSecond / 2, kSecond, 2 * kSecond, 3 * kSecond};
  std::mt19937_64 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.tokens = 2048u << random() % 5;
    request.slo_us = kSlos[random() % std::size(kSlos)];
    request.trace_us = static_cast<TimeUs>(random() % (600 * kSecond));
    request.gap_us = static_cast<TimeUs>(random() % (2 * kSecond));
    requests.push_back(request);
  }
  return requests;
}

RateTrace GpuShare(uint64_t seed) {
  std::mt19937_64 random(seed);
  return ChoiceRate(random, {1, 0.8, 0.5, 0.3, 0.1}, 0.7, kSecond / 20, 2400);
}

}  // namespace sluice::sim
