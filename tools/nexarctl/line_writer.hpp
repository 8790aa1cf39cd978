// The output of one rank: cut into lines, each printed whole and with its prefix, or as a JSON object. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace nexarctl {

class LineWriter {
  public:
    // A line longer than this is printed in pieces: a rank that prints no newline must not fill the
    // launcher's memory.
    static constexpr size_t line_bytes_max = 64 * 1024;

    using Shape = std::function<std::string(const std::string& line)>;  // without and with the ending newline
    explicit LineWriter(Shape shape) : shape_(std::move(shape)) {}
    static LineWriter prefixed(std::string prefix);
    static LineWriter json(uint32_t rank, std::string stream);  // {"rank":0,"stream":"stdout","line":"..."}

    // What can be printed now: whole lines only.
    std::string add(std::string_view bytes);
    // The rest, with a newline, at the rank's end.
    std::string end();

  private:
    Shape shape_;
    std::string line_;
};

}  // namespace nexarctl
