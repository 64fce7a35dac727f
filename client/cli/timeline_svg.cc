#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/load_timeline.h"
#include "client/cli/units.h"

namespace sluice::cli {
namespace {

constexpr double kLeft = 90, kWidth = 760, kRight = 20, kTop = 40;
constexpr double kLinkHeight = 140, kChunksHeight = 160, kEngineHeight = 18, kGap = 34;
constexpr double kBottom = 40;
constexpr double kLegendWidth = 130;
constexpr char kLinkColour[] = "#238b45", kArrivedColour[] = "#c7e9c0";
constexpr char kEstimateColour[] = "#d94801", kEngineColour[] = "#807dba";
constexpr const char* kLevelColours[] = {"#9ecae1", "#6baed6", "#3182bd", "#08519c", "#08306b"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

class SvgDrawing {
 public:
  explicit SvgDrawing(const Timeline& timeline) : line_(timeline) {}

  std::string Draw(const std::string& title) {
    const bool computes = std::ranges::any_of(line_.engine, [](double share) { return share > 0; });
    const double chunks_top = kTop + kLinkHeight + kGap;
    const double engine_top = chunks_top + kChunksHeight + kGap;
    const double bottom = computes ? engine_top + kEngineHeight : chunks_top + kChunksHeight;
    absl::StrAppendFormat(&out_,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                          "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
                          "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                          kLeft + kWidth + kRight, bottom + kBottom);
    Text(kLeft, 20, "start", title);
    DrawLink();
    DrawChunks(chunks_top);
    if (computes) DrawEngine(engine_top);
    DrawTime(bottom);
    return out_ + "</svg>\n";
  }

 private:
  double X(double column) const {
    return kLeft + kWidth * column / static_cast<double>(line_.num_columns());
  }

  void Text(double x, double y, const char* anchor, const std::string& text) {
    absl::StrAppendFormat(&out_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                          anchor, Escaped(text));
  }

  void Rect(double x, double y, double width, double height, const char* colour) {
    absl::StrAppendFormat(
        &out_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y,
        width, height, colour);
  }

  // A mark of a colour, as high as what it explains, and what it stands for.
  void Legend(double x, double y, const char* colour, double height, const std::string& what) {
    Rect(x, y + (10 - height) / 2, 10, height, colour);
    Text(x + 14, y + 10, "start", what);
  }

  // A stepped line, one value per column.
  void Steps(const std::vector<double>& values, double largest, const char* colour,
             const char* style) {
    if (values.empty() || !(largest > 0)) return;
    absl::StrAppend(&out_, "<polyline fill=\"none\" stroke=\"", colour, "\" ", style, " points=\"");
    for (size_t i = 0; i < values.size(); ++i) {
      const double y = kTop + kLinkHeight * (1 - values[i] / largest);
      absl::StrAppendFormat(&out_, "%.1f,%.1f %.1f,%.1f ", X(static_cast<double>(i)), y,
                            X(static_cast<double>(i) + 1), y);
    }
    absl::StrAppend(&out_, "\"/>\n");
  }

  void DrawLink() {
    double largest = 0;
    for (const auto* row : {&line_.link, &line_.estimate, &line_.arrived}) {
      for (const double value : *row) largest = std::max(largest, value);
    }
    const double column = kWidth / static_cast<double>(line_.num_columns());
    for (size_t i = 0; i < line_.num_columns() && largest > 0; ++i) {
      const double height = kLinkHeight * line_.arrived[i] / largest;
      if (height > 0) {
        Rect(X(static_cast<double>(i)), kTop + kLinkHeight - height, column, height,
             kArrivedColour);
      }
    }
    Steps(line_.link, largest, kLinkColour, "stroke-width=\"1.5\"");
    Steps(line_.estimate, largest, kEstimateColour, "stroke-dasharray=\"4 2\"");
    Text(kLeft - 6, kTop + 10, "end", FormatRate(largest));
    Text(kLeft - 6, kTop + kLinkHeight, "end", "0");
    const double y = kTop + kLinkHeight + 6;
    double x = kLeft;
    const auto legend = [&](const std::vector<double>& row, const char* colour, double height,
                            const char* what) {
      if (std::ranges::all_of(row, [](double value) { return value <= 0; })) return;
      Legend(x, y, colour, height, what);
      x += kLegendWidth;
    };
    legend(line_.link, kLinkColour, 2, "the link carries");
    legend(line_.arrived, kArrivedColour, 10, "arrived");
    legend(line_.estimate, kEstimateColour, 2, "estimate (dashed)");
  }

  // Chunks that have reached each level by then, the smallest behind.
  void DrawChunks(double top) {
    const double largest = static_cast<double>(line_.num_chunks);
    const double column = kWidth / static_cast<double>(line_.num_columns());
    double legend_x = kLeft;
    for (size_t row = 0; row < line_.levels.size(); ++row) {
      const char* colour = kLevelColours[std::min(row, std::size(kLevelColours) - 1)];
      double sum = 0;
      for (size_t i = 0; i < line_.num_columns(); ++i) {
        sum += line_.levels[row].chunks[i];
        const double height = kChunksHeight * sum / largest;
        if (height > 0) {
          Rect(X(static_cast<double>(i)), top + kChunksHeight - height, column, height, colour);
        }
      }
      if (sum == 0) continue;
      Legend(legend_x, top + kChunksHeight + 6, colour, 10,
             absl::StrCat("level ", line_.levels[row].level));
      legend_x += kLegendWidth;
    }
    Text(kLeft - 6, top + 10, "end", FormatCount(line_.num_chunks, "chunk"));
    Text(kLeft - 6, top + kChunksHeight, "end", "0");
  }

  void DrawEngine(double top) {
    const double column = kWidth / static_cast<double>(line_.num_columns());
    for (size_t i = 0; i < line_.num_columns(); ++i) {
      const double height = kEngineHeight * std::min(line_.engine[i], 1.0);
      if (height > 0) {
        Rect(X(static_cast<double>(i)), top + kEngineHeight - height, column, height,
             kEngineColour);
      }
    }
    Text(kLeft - 6, top + kEngineHeight - 4, "end", "engine");
    Legend(kLeft, top + kEngineHeight + 6, kEngineColour, 10, "the engine computes");
  }

  void DrawTime(double bottom) {
    const double column_ms = static_cast<double>(line_.column_us) * 1e-3;
    const double end_ms = column_ms * static_cast<double>(line_.num_columns());
    const double slo = X(static_cast<double>(line_.slo_us) * 1e-3 / column_ms);
    absl::StrAppendFormat(&out_,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                          "stroke=\"#cb181d\" stroke-width=\"1.5\"/>\n",
                          slo, kTop, slo, bottom);
    Text(slo, kTop - 4, "middle", "SLO");
    Text(kLeft, bottom + 32, "start", "0 ms");
    Text(kLeft + kWidth, bottom + 32, "end", FormatMs(end_ms));
  }

  const Timeline& line_;
  std::string out_;
};

}  // namespace

std::string TimelineSvg(const Timeline& timeline, const std::string& title) {
  return SvgDrawing(timeline).Draw(title);
}

}  // namespace sluice::cli
