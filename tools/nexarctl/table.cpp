#include "nexarctl/table.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/controls.hpp"

namespace nexarctl {

namespace {

// Columns on a terminal: bytes that start a character. (Wide characters would need a table.)
size_t width(const std::string& text) {
    return static_cast<size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string printable(std::string text) {
    return nexar::without_controls(std::move(text), '?');
}

Table::Table(std::vector<std::string> headers) {
    for (auto& header : headers) {
        right_.push_back(header.starts_with('>'));
        if (right_.back()) header.erase(0, 1);
    }
    rows_.push_back(std::move(headers));
}

void Table::row(std::vector<std::string> cells) {
    cells.resize(right_.size());
    for (auto& cell : cells) {
        cell = printable(std::move(cell));
        if (cell.empty()) cell = "-";
    }
    rows_.push_back(std::move(cells));
}

std::string Table::text() const {
    std::vector<size_t> widths(right_.size());
    for (const auto& row : rows_)
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    std::string out;
    for (const auto& row : rows_) {
        std::string line;
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string padding(widths[i] - width(row[i]), ' ');
            line += (i == 0 ? "" : "  ") + (right_[i] ? padding + row[i] : row[i] + padding);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + "\n";
    }
    return out;
}

std::string aligned(const std::vector<std::pair<std::string, std::string>>& lines) {
    size_t widest = 0;
    for (const auto& [label, value] : lines) widest = std::max(widest, width(label));
    std::string out;
    for (const auto& [label, value] : lines)
        out += label + std::string(widest + 2 - width(label), ' ') + printable(value) + "\n";
    return out;
}

}  // namespace nexarctl
