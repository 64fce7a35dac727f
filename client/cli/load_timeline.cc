#include "client/cli/load_timeline.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/load_story.h"

namespace sluice::cli {
namespace {

using adapt::TimeUs;

// From nothing to the largest value of a row.
constexpr std::string_view kShades = " .:-=+*#";
constexpr char kTenOrMore = 'x';

class TimelineMaker {
 public:
  TimelineMaker(const client::LoadRecord& record, size_t num_columns)
      : start_us_(record.spec.start_us) {
    // A mark for the SLO needs a column behind it.
    end_us_ = record.slo_us + record.slo_us / 50;
    if (!record.events.empty()) end_us_ = std::max(end_us_, record.events.back().at_us - start_us_);
    line_.slo_us = record.slo_us;
    line_.num_chunks = record.spec.chunks.size();
    line_.column_us = std::max<TimeUs>(end_us_ / static_cast<TimeUs>(num_columns) + 1, 1);
    line_.estimate.assign(num_columns, 0);
    line_.arrived.assign(num_columns, 0);
    line_.engine.assign(num_columns, 0);
    for (const codec::Level level : client::LevelsOfSteps(record, client::TellChunks(record))) {
      line_.levels.push_back({codec::LevelName(level), std::vector<uint32_t>(num_columns, 0)});
    }
  }

  Timeline Make(const client::LoadRecord& record) {
    for (const client::RecordedEvent& recorded : record.events) {
      const TimeUs now_us = std::clamp<TimeUs>(recorded.at_us - start_us_, 0, end_us_);
      column_ = static_cast<size_t>(now_us / line_.column_us);
      std::visit([this](const auto& event) { On(event); }, recorded.event);
      const bool computed = std::holds_alternative<adapt::ChunksComputed>(recorded.event);
      if (computed || recorded.actions.finished) StopEngine(now_us);
      if (recorded.actions.compute.has_value()) {
        StopEngine(now_us);  // of a chunk before, if it has not said so
        computing_us_ = now_us;
      }
    }
    StopEngine(end_us_);
    const double column_s = static_cast<double>(line_.column_us) * 1e-6;
    for (double& bytes : line_.arrived) bytes /= column_s;
    // An estimate holds until the next.
    for (size_t i = 1; i < line_.num_columns(); ++i) {
      if (line_.estimate[i] == 0 && i <= last_tick_) line_.estimate[i] = line_.estimate[i - 1];
    }
    return std::move(line_);
  }

 private:
  void On(const adapt::Tick& tick) {
    line_.estimate[column_] = tick.link.mean_bytes_per_s;
    last_tick_ = column_;
  }
  void On(const adapt::BytesArrived& event) {
    line_.arrived[column_] += static_cast<double>(event.bytes);
  }
  void On(const adapt::StepLoaded& event) {
    if (event.step < line_.levels.size()) ++line_.levels[event.step].chunks[column_];
  }
  template <typename Other>
  void On(const Other&) {}

  void StopEngine(TimeUs now_us) {
    if (computing_us_ < 0) return;
    for (size_t i = 0; i < line_.num_columns(); ++i) {
      const TimeUs begin_us = static_cast<TimeUs>(i) * line_.column_us;
      const TimeUs overlap_us =
          std::min(now_us, begin_us + line_.column_us) - std::max(computing_us_, begin_us);
      if (overlap_us <= 0) continue;
      line_.engine[i] += static_cast<double>(overlap_us) / static_cast<double>(line_.column_us);
    }
    computing_us_ = -1;
  }

  const TimeUs start_us_;
  TimeUs end_us_ = 0;
  TimeUs computing_us_ = -1;
  size_t column_ = 0, last_tick_ = 0;
  Timeline line_;
};

std::string Shades(const std::vector<double>& values, double largest) {
  std::string text;
  for (const double value : values) {
    const double share = largest > 0 ? std::min(value / largest, 1.0) : 0;
    text += kShades[static_cast<size_t>(std::ceil(share * (kShades.size() - 1)))];
  }
  return text;
}

// What each shade in `rows` stands for at most: ". 10 MB/s, # 70 MB/s".
std::string ShadesLegend(const std::string& rows, double largest,
                         const std::function<std::string(double)>& format) {
  std::vector<std::string> marks;
  for (size_t shade = 1; shade < kShades.size(); ++shade) {
    if (rows.find(kShades[shade]) == std::string::npos) continue;
    const double most = largest * static_cast<double>(shade) / (kShades.size() - 1);
    marks.push_back(absl::StrCat(std::string(1, kShades[shade]), " ", format(most)));
  }
  return absl::StrJoin(marks, ", ");
}

std::string Counts(const std::vector<uint32_t>& counts) {
  std::string text;
  for (const uint32_t count : counts) {
    text += count == 0 ? ' ' : count < 10 ? static_cast<char>('0' + count) : kTenOrMore;
  }
  return text;
}

double Largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::ranges::max_element(values);
}

// What a link has carried by the end of a column arrives a little later: not in the next column, as
// more than the link can carry.
void ShiftLateArrivals(const std::vector<double>& link, std::vector<double>& arrived) {
  for (size_t i = arrived.size(); i-- > 1;) {
    const double late = arrived[i] - link[i];
    if (late <= 0) continue;
    arrived[i] -= late;
    arrived[i - 1] += late;
  }
}

}  // namespace

Timeline MakeTimeline(const client::LoadRecord& record, const sim::RateTrace* link,
                      size_t num_columns) {
  Timeline line = TimelineMaker(record, num_columns).Make(record);
  if (link == nullptr) return line;
  const double column_s = static_cast<double>(line.column_us) * 1e-6;
  for (size_t i = 0; i < num_columns; ++i) {
    const TimeUs begin_us = record.spec.start_us + static_cast<TimeUs>(i) * line.column_us;
    line.link.push_back(link->Amount(begin_us, begin_us + line.column_us) / column_s);
  }
  ShiftLateArrivals(line.link, line.arrived);
  return line;
}

std::string TimelineText(const Timeline& timeline) {
  const double largest =
      std::max({Largest(timeline.link), Largest(timeline.estimate), Largest(timeline.arrived)});
  Table table({{"", Align::kLeft}, {"", Align::kLeft}, {"", Align::kLeft}});
  std::string rates, counts, legend;
  const auto add = [&table](const std::string& name, const std::string& row,
                            const std::string& note) {
    table.Add({name, absl::StrCat("|", row, "|"), note});
    return row;
  };
  if (!timeline.link.empty()) rates += add("link", Shades(timeline.link, largest), "");
  rates += add("estimate", Shades(timeline.estimate, largest), "");
  rates += add("arrived", Shades(timeline.arrived, largest), "");
  if (const std::string marks = ShadesLegend(rates, largest, FormatRate); !marks.empty()) {
    absl::StrAppend(&legend, "  rates, up to: ", marks, "\n");
  }
  for (const Timeline::Row& row : timeline.levels) {
    const uint32_t chunks = std::accumulate(row.chunks.begin(), row.chunks.end(), 0U);
    if (chunks == 0) continue;
    counts +=
        add(absl::StrCat("level ", row.level), Counts(row.chunks), FormatCount(chunks, "chunk"));
  }
  if (!counts.empty()) {
    const bool many = counts.find(kTenOrMore) != std::string::npos;
    absl::StrAppend(&legend, "  levels: the number of chunks that reached it just then",
                    many ? ", x is ten or more" : "", "\n");
  }
  if (Largest(timeline.engine) > 0) {
    const std::string row = add("engine", Shades(timeline.engine, 1), "");
    const auto percent = [](double part) { return absl::StrFormat("%.0f %%", 100 * part); };
    absl::StrAppend(&legend, "  engine computes, up to: ", ShadesLegend(row, 1, percent), "\n");
  }
  std::string ruler(timeline.num_columns(), ' ');
  const auto slo_column = static_cast<size_t>(timeline.slo_us / timeline.column_us);
  if (slo_column < ruler.size()) ruler[slo_column] = '^';
  add("time", ruler, "");
  absl::StrAppend(&legend, "  ^ is the SLO, ", FormatUs(timeline.slo_us), "; a column is ",
                  FormatUs(timeline.column_us), "\n");
  return table.Text() + legend;
}

Json ToJson(const Timeline& timeline) {
  Json levels = Json::array();
  for (const Timeline::Row& row : timeline.levels) {
    levels.push_back({{"level", row.level}, {"chunks", row.chunks}});
  }
  return {{"column_ms", static_cast<double>(timeline.column_us) * 1e-3},
          {"link_bytes_per_s", timeline.link},
          {"estimate_bytes_per_s", timeline.estimate},
          {"arrived_bytes_per_s", timeline.arrived},
          {"engine_share", timeline.engine},
          {"reached", std::move(levels)}};
}

}  // namespace sluice::cli
