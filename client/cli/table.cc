#include "client/cli/table.h"

#include <algorithm>
#include <utility>

namespace sluice::cli {
namespace {

// Characters, not bytes: model names may be UTF-8.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

void AppendRow(std::string& out, const std::vector<std::string>& cells,
               const std::vector<Column>& columns, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += "  ";
    const std::string padding(widths[i] - Width(cells[i]), ' ');
    line += columns[i].align == Align::kRight ? padding + cells[i] : cells[i] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

}  // namespace

std::string Printable(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::Add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = Printable(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::string Table::Text() const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  for (const Column& column : columns_) titles.push_back(column.title);
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(Width(titles[i]));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out;
  if (std::ranges::any_of(titles, [](const auto& title) { return !title.empty(); })) {
    AppendRow(out, titles, columns_, widths);
  }
  for (const auto& row : rows_) AppendRow(out, row, columns_, widths);
  return out;
}

void Table::Print(std::FILE* out) const { std::fputs(Text().c_str(), out); }

void PrintPairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Table table({{"", Align::kLeft}, {"", Align::kLeft}});
  for (const auto& [name, value] : pairs) table.Add({name, value});
  table.Print();
}

}  // namespace sluice::cli
