// Text tables with aligned columns.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace sluice::cli {

// The text without what a terminal might obey: it comes from files and servers.
std::string Printable(std::string text);

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kRight;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);

  // One cell per column; further cells are dropped, absent ones are empty.
  void Add(std::vector<std::string> cells);
  // Titles, then rows; two blanks between columns, none at the end of a line.
  std::string Text() const;
  void Print(std::FILE* out = stdout) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Two columns without titles: names and values.
void PrintPairs(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace sluice::cli
