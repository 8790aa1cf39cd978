// Aligned tables for people. Cells may hold names of any user: control characters are shown as '?'.
#pragma once

#include <string>
#include <vector>

namespace nexarctl {

std::string printable(std::string text);

class Table {
  public:
    // A header that starts with '>' is of a column aligned to the right.
    explicit Table(std::vector<std::string> headers);
    void row(std::vector<std::string> cells);
    std::string text() const;  // with a newline after each line
    bool empty() const { return rows_.size() == 1; }

  private:
    std::vector<bool> right_;
    std::vector<std::vector<std::string>> rows_;
};

// "label      value" lines with the values aligned.
std::string aligned(const std::vector<std::pair<std::string, std::string>>& lines);

}  // namespace nexarctl
