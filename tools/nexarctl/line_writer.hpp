// The output of one rank: cut into lines, each printed whole and with its prefix. Pure.
#pragma once

#include <string>
#include <string_view>

namespace nexarctl {

class LineWriter {
  public:
    // A line longer than this is printed in pieces: a rank that prints no newline must not fill our memory.
    static constexpr size_t line_bytes_max = 64 * 1024;

    explicit LineWriter(std::string prefix) : prefix_(std::move(prefix)) {}

    // What can be printed now: whole lines only.
    std::string add(std::string_view bytes);
    // The rest, with a newline, at the rank's end.
    std::string end();

  private:
    std::string prefix_;
    std::string line_;
};

}  // namespace nexarctl
