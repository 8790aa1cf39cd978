// The lines that wait for their reader: bounded, and what is dropped is counted.
#include "writers/line_writer.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace nexar;
using namespace nexar::writers;

TEST_CASE("lines that were dropped are counted once there is room again", "[writers][H11]") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    LineWriter writer(ends[1]);
    const std::string line(999, 'x');
    uint64_t pushed = 0, read_lines = 0, dropped = 0;
    // Until pipe, batch in progress and waiting lines are all full: then there is no room for a count.
    for (uint64_t taken = 1; taken != 0; dropped += taken) {
        REQUIRE(pushed < 60000);
        for (int i = 0; i < 3000; ++i, ++pushed) writer.push(line + "\n");
        taken = writer.take_dropped();
    }
    char buffer[1000];
    size_t have = 0;
    while (read_lines + dropped < pushed) {
        const ssize_t n = read(ends[0], buffer + have, sizeof buffer - have);
        REQUIRE(n > 0);
        have += static_cast<size_t>(n);
        if (have < sizeof buffer) continue;
        REQUIRE(std::string_view(buffer, 999) == line);
        have = 0;
        ++read_lines;
        dropped += writer.take_dropped();
    }
    CHECK(read_lines + dropped == pushed);
    CHECK(dropped > 0);
    CHECK(read_lines >= LineWriter::bytes_max / 1000);
    close(ends[0]);
    writer.push("nobody reads this\n");
    close(ends[1]);
}
